// Package importer turns what other systems say of their customers and endpoints into files for `fairlane
// apply`, and says of each object what does not map. What it cannot map and would widen who gets what is imported
// paused; nothing is widened.
package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// Result is what an export has become.
type Result struct {
	File          []byte // for `fairlane apply -f`
	Secrets       []byte // lines NAME=value for `fairlane apply --env`; nobody else's business
	Tenants       int
	Subscriptions int
	Notes         []Note // what does not map, in the order of the objects
}

// Note says what of an object does not map, and what became of it. It holds no secret.
type Note struct {
	Object string `json:"object"` // as the export names it
	Field  string `json:"field"`
	Note   string `json:"note"`
}

// The files' form. Order and names are those of the API.
type (
	document struct {
		Tenants       []tenant       `yaml:"tenants"`
		Subscriptions []subscription `yaml:"subscriptions"`
	}
	tenant struct {
		ID   string `yaml:"id"`
		Name string `yaml:"name,omitempty"`
	}
	subscription struct {
		Tenant    string            `yaml:"tenant"`
		Name      string            `yaml:"name"`
		URL       string            `yaml:"url"`
		Topics    []string          `yaml:"topics"`
		Match     map[string]string `yaml:"match,omitempty"`
		Rate      string            `yaml:"rate,omitempty"`
		Timeout   string            `yaml:"timeout,omitempty"`
		Lane      string            `yaml:"lane,omitempty"`
		Paused    bool              `yaml:"paused,omitempty"`
		Signature *signature        `yaml:"signature"`
		Secrets   []string          `yaml:"secrets,omitempty"`
		Headers   map[string]string `yaml:"headers,omitempty"`
	}
	signature struct {
		Profile   string `yaml:"profile"`
		Header    string `yaml:"header,omitempty"`
		Content   string `yaml:"content,omitempty"`
		Value     string `yaml:"value,omitempty"`
		Separator string `yaml:"separator,omitempty"`
		Algorithm string `yaml:"algorithm,omitempty"`
		Encoding  string `yaml:"encoding,omitempty"`
	}
)

// work is an import under way.
type work struct {
	document
	notes   []Note
	secrets bytes.Buffer
	names   map[string]bool   // of secrets
	ids     map[string]string // of tenants: the object that each comes from
}

func newWork() *work { return &work{names: map[string]bool{}, ids: map[string]string{}} }

func (w *work) note(object, field, format string, args ...any) {
	w.notes = append(w.notes, Note{object, field, fmt.Sprintf(format, args...)})
}

// secret keeps a value out of the file, and returns what stands there instead.
func (w *work) secret(name, value string) string {
	name = notName.ReplaceAllString(name, "_")
	unique := name
	for n := 2; w.names[unique]; n++ {
		unique = fmt.Sprintf("%s_%d", name, n)
	}
	w.names[unique] = true
	fmt.Fprintf(&w.secrets, "%s=%s\n", unique, value)
	return "${" + unique + "}"
}

// header adds a custom header, whose value may be a credential.
func (w *work) header(object string, s *subscription, id, name, value string) {
	if strings.ContainsAny(value, "\r\n") {
		w.note(object, "headers."+clip(name), "holds a line break: not imported")
		return
	}
	if s.Headers == nil {
		s.Headers = map[string]string{}
	}
	s.Headers[name] = w.secret("HEADER_"+id+"_"+name, value)
}

var (
	notName = regexp.MustCompile(`[^A-Za-z0-9_]`)
	goodID  = regexp.MustCompile(`\A[A-Za-z0-9_][A-Za-z0-9._:@-]{0,127}\z`)
)

// id is the first of the candidates that can be an id here; the last is the other system's own.
func (w *work) id(object, field string, candidates ...string) string {
	for i, c := range candidates {
		if c == "" || !goodID.MatchString(c) {
			continue
		}
		if i > 0 && candidates[0] != "" {
			w.note(object, field, "cannot be an id here; %s stands for it", c)
		}
		return c
	}
	return ""
}

// label is a name for people.
func (w *work) label(object, field, s string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
	for len(clean) > 256 {
		_, size := utf8.DecodeLastRuneInString(clean)
		clean = clean[:len(clean)-size]
	}
	if clean != s {
		w.note(object, field, "was shortened: at most 256 bytes without control characters")
	}
	return clean
}

var goodTopic = regexp.MustCompile(`\A[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\z`)

// topics are the event types that can be topics; the others are noted.
func (w *work) topics(object, field string, types []string) (list []string) {
	for _, t := range types {
		switch {
		case len(t) > 256 || !goodTopic.MatchString(t):
			w.note(object, field, "%q cannot be a topic (letters, digits, _ and -, joined by dots); post it under another name, and add that", clip(t))
		case !slices.Contains(list, t):
			list = append(list, t)
		}
	}
	return list
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "..."
	}
	return s
}

const topicsMost = 64 // of one subscription

// subscribe adds s, in parts that share a lane where it has more topics than one subscription takes.
func (w *work) subscribe(s subscription) {
	parts := slices.Collect(slices.Chunk(s.Topics, topicsMost))
	name := s.Name
	if len(parts) > 1 && s.Lane == "" && len(name) <= 64 && goodLane.MatchString(name) {
		s.Lane = name
	}
	for i, topics := range parts {
		s.Topics = topics
		if i > 0 {
			s.Name = fmt.Sprintf("%s.%d", name, i+1)
		}
		w.Subscriptions = append(w.Subscriptions, s)
	}
}

var goodLane = regexp.MustCompile(`\A[A-Za-z0-9._-]{1,64}\z`)

// result writes the files.
func (w *work) result(from string) (*Result, error) {
	file, err := yaml.MarshalWithOptions(w.document, yaml.UseSingleQuote(false), yaml.CustomMarshaler[string](scalar))
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("# %d tenants, %d subscriptions, from %s. Secrets are in a file of their own (fairlane apply --env).\n", len(w.Tenants), len(w.Subscriptions), from)
	return &Result{
		File: append([]byte(head), file...), Secrets: w.secrets.Bytes(),
		Tenants: len(w.Tenants), Subscriptions: len(w.Subscriptions), Notes: w.notes,
	}, nil
}

// scalar writes a text. The library leaves "? x" bare, which is read as a mapping's key; and it indents a text of several
// lines only where it knows how deep it stands.
func scalar(s string) ([]byte, error) {
	if strings.HasPrefix(s, "?") || strings.Contains(s, "\n") {
		return yaml.MarshalWithOptions(s, yaml.JSON())
	}
	return yaml.MarshalWithOptions(s, yaml.UseSingleQuote(false))
}

// list is a list as APIs answer it: bare, or within pages.
type list[T any] struct {
	items []T
	more  bool // this is not the last page
}

// UnmarshalJSON reads [..], Svix's {"data": [..], "done": ..}, Convoy's {"content": [..], "pagination": ..},
// and either of Convoy's within {"data": ..}.
func (l *list[T]) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		return json.Unmarshal(data, &l.items)
	}
	var page struct {
		Data       json.RawMessage
		Done       *bool
		Content    json.RawMessage
		Pagination struct {
			HasNextPage bool `json:"has_next_page"`
		}
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return err
	}
	switch {
	case page.Content != nil:
		l.more = page.Pagination.HasNextPage
		return json.Unmarshal(page.Content, &l.items)
	case page.Data != nil:
		err := l.UnmarshalJSON(page.Data)
		l.more = l.more || page.Done != nil && !*page.Done
		return err
	}
	return fmt.Errorf("neither a list nor a page of one")
}
