package journal

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Cluster is a NATS cluster with JetStream that is used instead of the embedded server. Give Fairlane an
// account of its own there: the streams' names are fixed.
type Cluster struct {
	URLs           []string // nats://host:port, tls://host:port
	Credentials    string   // file; "" is none
	User, Password string
	CA, Cert, Key  string // PEM files; CA "" means the system's; Cert and Key: both or none
	Replicas       int    // of every stream; 0 means 3
	Few            bool   // fewer than three replicas are accepted: one lost server may lose what was acknowledged
}

const defaultReplicas = 3

// check fills what is zero and reports a bad field.
func (c Cluster) check() (Cluster, error) {
	c.Replicas = cmp.Or(c.Replicas, defaultReplicas)
	switch {
	case len(c.URLs) == 0:
		return c, errors.New("journal: Cluster.URLs is empty")
	case c.Replicas < 1 || c.Replicas > 5:
		return c, fmt.Errorf("journal: Cluster.Replicas is %d, must be 1 to 5", c.Replicas)
	case c.Replicas < defaultReplicas && !c.Few:
		return c, fmt.Errorf("journal: Cluster.Replicas is %d, must be at least %d: with fewer, one lost server loses what was acknowledged (Few accepts that)", c.Replicas, defaultReplicas)
	case (c.Cert == "") != (c.Key == ""):
		return c, errors.New("journal: Cluster.Cert and Cluster.Key need each other")
	}
	return c, nil
}

const (
	roomAround   = 64 << 10 // what stands around a body, in a message
	leastPayload = 1 << 20  // of messages that are not triggers
)

// outside connects to the cluster, and reads what its servers take in one message.
func (l *link) outside(maxBody int) error {
	c := l.cluster
	tlsConfig, err := c.tls()
	if err != nil {
		return err
	}
	opts := append(l.connection(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.Timeout(l.patience), nats.PingInterval(5*time.Second), nats.MaxPingsOutstanding(2))
	if tlsConfig != nil {
		opts = append(opts, nats.Secure(tlsConfig))
	}
	if c.Credentials != "" {
		opts = append(opts, nats.UserCredentials(c.Credentials))
	}
	if c.User != "" {
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	}
	if err := l.connect(strings.Join(c.URLs, ","), opts); err != nil {
		return fmt.Errorf("journal: the NATS cluster: %w", err)
	}
	most := l.nc.MaxPayload()
	if need := int64(max(leastPayload, maxBody+roomAround)); most < need {
		return fmt.Errorf("journal: the NATS cluster's max_payload is %d bytes; bodies of up to %d bytes (server.max_body) need %d: raise the one, or lower the other", most, maxBody, need)
	}
	l.entryMost = min(l.entryMost, int(most)-4<<10)
	return nil
}

func (c *Cluster) tls() (*tls.Config, error) {
	if c.CA == "" && c.Cert == "" {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("journal: the NATS cluster's CA: %w", err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("journal: the NATS cluster's CA: %s holds no certificate", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("journal: the certificate for the NATS cluster: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// bucket opens a bucket, creating it where it is missing.
func (l *link) bucket(ctx context.Context, c jetstream.KeyValueConfig) (kv jetstream.KeyValue, err error) {
	c.Replicas = l.replicas
	err = l.asked(ctx, func(ctx context.Context) (err error) {
		if kv, err = l.found(ctx, c.Bucket); errors.Is(err, jetstream.ErrBucketNotFound) {
			kv, err = l.js.CreateKeyValue(ctx, c)
		}
		return err
	})
	return kv, err
}

// found opens a bucket that is there, and gives it the number of replicas that is asked for.
func (l *link) found(ctx context.Context, bucket string) (kv jetstream.KeyValue, err error) {
	if kv, err = l.js.KeyValue(ctx, bucket); err == nil {
		err = l.scale(ctx, "KV_"+bucket)
	}
	return kv, err
}

// scale gives a stream the number of replicas that is asked for.
func (l *link) scale(ctx context.Context, stream string) error {
	s, err := l.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	c := s.CachedInfo().Config
	if max(c.Replicas, 1) == l.replicas {
		return nil
	}
	c.Replicas = l.replicas
	_, err = l.js.UpdateStream(ctx, c)
	return err
}

// leader is one, answered by the stream's leader: any replica answers a direct request, and one that lags knows
// less than was acknowledged. What it has is right, since messages never change; what it does not have may be
// there.
func (l *link) leader(ctx context.Context, stream string, r getRequest) (message, bool, error) {
	r.Batch, r.MaxBytes = 0, 0
	body, err := json.Marshal(r)
	if err != nil {
		return message{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	m, err := l.reads.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return message{}, false, unanswered(stream, err)
	}
	var got struct {
		Message *struct {
			Seq  uint64    `json:"seq"`
			Data []byte    `json:"data"`
			Time time.Time `json:"time"`
		} `json:"message"`
		Error *struct {
			Code        int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &got); {
	case err != nil:
		return message{}, false, unanswered(stream, err)
	case got.Error != nil && got.Error.Code == 404:
		return message{}, false, nil
	case got.Error != nil:
		return message{}, false, unanswered(stream, errors.New(got.Error.Description))
	case got.Message == nil:
		return message{}, false, unanswered(stream, errors.New("an answer without a message"))
	}
	return message{seq: got.Message.Seq, at: got.Message.Time, data: got.Message.Data}, true, nil
}

// leaderBatch is batch, answered by the stream's leader.
func (l *link) leaderBatch(ctx context.Context, stream string, from uint64, subject string, n int) (out []message, err error) {
	for bytes := 0; len(out) < n && bytes < readBytes; {
		m, ok, err := l.leader(ctx, stream, getRequest{Seq: max(from, 1), NextFor: subject})
		if err != nil || !ok {
			return out, err
		}
		out = append(out, m)
		bytes += len(m.data)
		from = m.seq + 1
	}
	return out, nil
}
