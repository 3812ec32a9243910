package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
)

func wantsStream(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream")
}

const (
	liveEvery  = time.Second
	streamLife = 15 * time.Minute // then the browser asks again, with what authority it has then
	sendWithin = 10 * time.Second
)

// stream sends the live parts of a page, each when it has changed, until the visitor leaves.
func (u *UI) stream(w http.ResponseWriter, v *visit, p *page) {
	select {
	case u.streams <- struct{}{}:
		defer func() { <-u.streams }()
	default:
		w.WriteHeader(http.StatusNoContent) // the browser does not ask again
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	end := time.NewTimer(streamLife)
	defer end.Stop()
	sent := map[string]string{}
	for {
		if u.push(w, v, p, sent) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-v.Context().Done():
			return
		case <-u.closed.Done():
			return
		}
	}
}

// push sends what is not as it was sent before.
func (u *UI) push(w http.ResponseWriter, v *visit, p *page, sent map[string]string) error {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(sendWithin)) // a test's writer has none
	if !u.still(v) {
		return errNothing
	}
	shown, err := p.make(u, v)
	if err != nil {
		return err
	}
	shown.complete(v)
	t := templates[shown.page]
	for _, part := range liveParts(t) {
		var b bytes.Buffer
		if err := t.ExecuteTemplate(&b, part, shown); err != nil {
			return err
		}
		if sent[part] == b.String() {
			continue
		}
		sent[part] = b.String()
		line, err := json.Marshal(map[string]string{"part": part, "html": b.String()})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", line); err != nil {
			return err
		}
	}
	if _, err := w.Write([]byte(": \n\n")); err != nil {
		return err
	}
	return c.Flush()
}

// still reports whether the visitor may go on: a key or a link that was revoked, and a link that has ended, show nothing more.
func (u *UI) still(v *visit) bool {
	if v.link != nil {
		return u.good(v.link, time.Now())
	}
	who, ok := u.o.Identify(v.key)
	return ok && who == v.who
}

// liveParts names the templates of a page that begin with "live-".
func liveParts(t *template.Template) (parts []string) {
	for _, one := range t.Templates() {
		if strings.HasPrefix(one.Name(), "live-") {
			parts = append(parts, one.Name())
		}
	}
	return parts
}
