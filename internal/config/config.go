// Package config reads the service's one configuration file.
//
// The file is YAML and strict: an unknown key, a repeated key, a value of the
// wrong type or out of range is an error that names file, line, field and rule,
// and one reading reports all of them. What is absent has its default. 0 means
// none or paused, never unlimited; unlimited is a word. Durations and sizes
// carry their unit. Secrets are written as ${NAME} and come from the
// environment; they appear in no error and in no print-out.
package config

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/fairlane-dev/fairlane/internal/strictyaml"
)

// MaxFile is the greatest size of a file, in bytes.
const MaxFile = 64 << 10

// Config is the effective configuration: every field is set, by the file or by its default.
// It is plain data; nobody changes it after Load.
type Config struct {
	Server    Server
	Data      Data
	NATS      NATS
	Retention Retention
	Slots     int // requests in flight on the whole platform
	Delivery  Delivery
	Tiers     map[string]*Tier     // "default" is always there
	Envelopes map[string]*Envelope // nil when there are none
}

// Server is how the API listens.
type Server struct {
	Listen      string
	Cert, Key   string // files; both or none
	AdminKey    Secret
	StopGrace   time.Duration // how long requests in flight may finish at a stop
	MaxBody     int64         // bytes of one trigger's payload
	OpenMetrics bool          // GET /metrics without a key
	Frames      []string      // origins that may show a tenant's page in a frame
	Operator    string        // tenant that hears of events of every tenant; "" is none
	MetricsTop  int64         // lanes and tenants with series of their own, by each ranking
}

// Data is where state lives.
type Data struct {
	Dir       string
	MaxBytes  int64 // of the log on disk
	Ballast   int64 // bytes kept aside for a full disk
	SecretKey Secret
	Previous  []Secret // keys that SecretKey has replaced
}

// NATS is the external cluster that holds the log. Without URLs it is embedded.
type NATS struct {
	URLs          []string
	Credentials   string // file
	User          string
	Password      Secret
	CA, Cert, Key string // files
	Replicas      int64
	Few           bool // fewer than three replicas are accepted
}

// Retention is how long settled things are kept.
type Retention struct {
	History time.Duration // triggers, for resends
	Dead    time.Duration // dead letters
}

// Delivery holds the defaults of every lane.
type Delivery struct {
	Timeout       time.Duration
	QuickAttempts int64
	QuickBase     time.Duration
	Slow          []time.Duration
	Horizon       time.Duration
	BudgetRatio   float64
	HalfLife      time.Duration
	Consecutive   int64
	Open, OpenMax time.Duration
	Allow         []netip.Prefix // addresses beside public ones
	NAT64         []netip.Prefix // the network's own translation prefixes
	Proxy         string         // "http://host:port"; "" is none
	ProxyUser     Secret         // "user:password"
	Cert, Key     string         // files of the platform's own client certificate; both or none
}

// Tier is a set of defaults for the subscriptions of its tenants.
type Tier struct {
	Weight  int64
	Rate    string // "100/s", "unlimited", "0" for paused
	Burst   int64  // 0 exactly when Rate is unlimited or paused
	Cap     int64
	Backlog int64 // bytes a tenant may have parked and dead
	CapAuto CapAuto
	Inbound Inbound

	Subscriptions int64 // that a tenant may have
}

// CapAuto bounds the caps that the service sets by itself. Max 0: it does not.
type CapAuto struct{ Min, Max int64 }

// Envelope is a body that subscriptions may choose instead of the payload as posted.
type Envelope struct {
	Schema      string // its version
	ContentType string
	Template    string
}

// Inbound limits what tenants of a tier may send. Zero fields are not set.
type Inbound struct {
	Rate  string
	Burst int64
	Share int64 // slots
}

// Env looks a variable up, as os.LookupEnv does.
type Env func(name string) (string, bool)

// Load reads the file at path. Its error is a Problems if the content is wrong. A nil env is
// the process's environment.
func Load(path string, env Env) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(path, data, env)
}

// Parse reads data; name stands for the file in errors. Empty data is the default.
func Parse(name string, data []byte, env Env) (*Config, error) {
	if env == nil {
		env = os.LookupEnv
	}
	c := Default()
	r := &reader{Reader: strictyaml.Reader{File: name}, env: env, config: c}
	r.parse(data)
	if len(r.Problems) == 0 {
		r.check()
	}
	if len(r.Problems) > 0 {
		return nil, r.Sorted()
	}
	return c, nil
}

// Default is the configuration of an empty file.
func Default() *Config {
	return &Config{
		Server:    Server{Listen: ":8080", StopGrace: 20 * time.Second, MaxBody: 1 << 20, MetricsTop: 20},
		Data:      Data{Dir: "./data", MaxBytes: 20 << 30, Ballast: 256 << 20},
		NATS:      NATS{Replicas: 3},
		Retention: Retention{History: 3 * day, Dead: 30 * day},
		Slots:     1200,
		Delivery: Delivery{
			Timeout:       15 * time.Second,
			QuickAttempts: 4,
			QuickBase:     250 * time.Millisecond,
			Slow: []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
				5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour},
			Horizon:     72 * time.Hour,
			BudgetRatio: 0.1,
			HalfLife:    10 * time.Second,
			Consecutive: 5,
			Open:        30 * time.Second,
			OpenMax:     10 * time.Minute,
		},
		Tiers: map[string]*Tier{"default": defaultTier()},
	}
}

func defaultTier() *Tier {
	return &Tier{Weight: 1, Rate: "unlimited", Cap: 16, Backlog: 2 << 30, Subscriptions: 1000}
}

// Secret is a value from the environment. Its zero value is "not set".
type Secret struct {
	Name  string // of the variable
	value string
}

// Value is the secret itself. It belongs into no log and no answer.
func (s Secret) Value() string { return s.value }

// String never shows the value.
func (s Secret) String() string {
	if s.Name == "" {
		return ""
	}
	return "${" + s.Name + "}"
}

// GoString never shows the value.
func (s Secret) GoString() string { return s.String() }

// Problems are all that is wrong, by line.
type Problems = strictyaml.Problems
