package identity

import (
	"net"
	"net/http"
	"strings"
)

// agrees reports whether what the request says beside its credential is of the
// credential's tenant. A repeated header agrees only if all its lines do.
func (r *Resolver) agrees(req *http.Request, tenant string) bool {
	if r.Header != "" {
		for _, said := range req.Header.Values(r.Header) {
			if said != tenant {
				return false
			}
		}
	}
	if r.Domain == "" {
		return true
	}
	label, under := Subdomain(req.Host, r.Domain)
	return !under || label == strings.ToLower(tenant)
}

// Subdomain returns what stands before the domain in a host, and whether
// something does. Case, a port and a final dot do not matter.
func Subdomain(host, domain string) (string, bool) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return strings.CutSuffix(host, "."+strings.ToLower(domain))
}
