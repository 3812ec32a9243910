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

// link opens the pages of one tenant to whoever has it, until it ends. It is its own proof: nothing of it is
// stored. Its form is <end, unix seconds>.<see or act>.<tenant>.<mac>, the last two in base64.
type link struct {
	text   string
	tenant string
	until  time.Time
	acts   bool // replay, test, rotate; else it looks
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
	return l, err == nil && err2 == nil && len(tenant) > 0 && now.Before(l.until)
}

// linkToken is what the forms of a link's pages carry.
func (u *UI) linkToken(l *link) string { return u.mac("form", l.text) }
