package ui

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// link opens the pages of one tenant to whoever has it, until it ends or the tenant's links are revoked. It is
// its own proof: nothing of it is stored but the generation of the tenant's links. Its form is
// <end, unix seconds>.<see or act>.<tenant>.<generation>.<mac>, tenant and mac in base64; no generation is 0.
type link struct {
	text       string
	tenant     string
	generation uint32
	until      time.Time
	acts       bool // replay, test, rotate; else it looks
}

// maxLinkLife bounds how long a link may be good.
const maxLinkLife = 90 * 24 * time.Hour

func linkKey(given []byte) []byte {
	if given == nil {
		given = []byte(rand.Text())
	}
	sum := sha256.Sum256(append([]byte("fairlane pages, links\x00"), given...))
	return sum[:]
}

func (u *UI) mac(what, text string) string {
	m := hmac.New(sha256.New, u.linkKey)
	fmt.Fprintf(m, "%s\x00%s", what, text)
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// newLink signs one.
func (u *UI) newLink(tenant string, acts bool, until time.Time) string {
	may := "see"
	if acts {
		may = "act"
	}
	body := fmt.Sprintf("%d.%s.%s", until.Unix(), may, base64.RawURLEncoding.EncodeToString([]byte(tenant)))
	if g := u.o.Links(tenant); g > 0 {
		body += fmt.Sprintf(".%d", g)
	}
	return body + "." + u.mac("link", body)
}

// openLink checks one.
func (u *UI) openLink(text string, now time.Time) (*link, bool) {
	i := strings.LastIndexByte(text, '.')
	if i < 0 || !sameText(text[i+1:], u.mac("link", text[:i])) {
		return nil, false
	}
	part := strings.Split(text[:i], ".")
	seconds, err := strconv.ParseInt(part[0], 10, 64)
	tenant, err2 := base64.RawURLEncoding.DecodeString(part[2])
	l := &link{text: text, tenant: string(tenant), until: time.Unix(seconds, 0), acts: part[1] == "act"}
	if len(part) > 3 {
		g, _ := strconv.ParseUint(part[3], 10, 32) // signed: it is one
		l.generation = uint32(g)
	}
	return l, err == nil && err2 == nil && len(tenant) > 0 && u.good(l, now)
}

// good reports whether a link has neither ended nor been revoked.
func (u *UI) good(l *link, now time.Time) bool {
	return now.Before(l.until) && l.generation == u.o.Links(l.tenant)
}

// linkToken is what the forms of a link's pages carry.
func (u *UI) linkToken(l *link) string { return u.mac("form", l.text) }
