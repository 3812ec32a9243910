package server

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

var tenantIDForm = regexp.MustCompile(`\A[A-Za-z0-9_][A-Za-z0-9._:@-]{0,127}\z`)

const tenantIDRule = "1 to 128 letters, digits and . _ : @ -, beginning with a letter, a digit or _"

func validTenantID(s string) bool { return tenantIDForm.MatchString(s) }

// tenantView is a tenant as the API shows it.
type tenantView struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Tier      string    `json:"tier"`
	Suspended bool      `json:"suspended"`
	Grants    []string  `json:"grants"` // broadcasts that it may see
	Created   time.Time `json:"created"`
}

// tenantIn is what creation and replacement of a tenant read.
type tenantIn struct {
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Tier      string `json:"tier,omitempty"`
	Suspended bool   `json:"suspended,omitempty"`

	Grants []string `json:"grants,omitempty"`
}

func viewTenant(t *journal.Tenant) tenantView {
	grants, known := t.Granted()
	if !known {
		grants = []string{">"} // made by a release without grants
	}
	return tenantView{Grants: append([]string{}, grants...), ID: t.ID, Name: t.Name, Tier: t.Tier, Suspended: t.Suspended, Created: t.Created}
}

func (s *Server) listTenants(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r, false)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(q, s.registry.Tenants(),
		func(t *journal.Tenant) uint64 { return uint64(t.Number) },
		func(t *journal.Tenant) bool { return !t.Deleted },
		viewTenant))
}

func (s *Server) getTenant(w http.ResponseWriter, r *http.Request) error {
	if err := plain(r); err != nil {
		return err
	}
	t, err := s.tenant(r, r.PathValue("id"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, viewTenant(&t))
}

// tenant finds one that is not deleted and that r's caller may know of.
func (s *Server) tenant(r *http.Request, id string) (journal.Tenant, error) {
	t, ok := s.registry.Tenant(id)
	if !ok || t.Deleted || !callerOf(r).sees(t.ID) {
		return t, &problem{code: notFound, detail: nothingThere}
	}
	return t, nil
}

// createTenant is POST /v1/tenants: the id is new.
func (s *Server) createTenant(w http.ResponseWriter, r *http.Request) error {
	t := journal.Tenant{Tier: "default"}
	o, err := s.readTenant(w, r, &t)
	if err != nil {
		return err
	}
	o.require("id")
	if err := o.err(); err != nil {
		return err
	}
	return s.alone(r.Context(), func() error {
		if _, exists := s.registry.Tenant(t.ID); exists {
			return refuse(conflict, "id", "exists or was used before; ids are never given again")
		}
		return s.storeTenant(w, r, t, http.StatusCreated)
	})
}

// putTenant is PUT /v1/tenants/{id}: it creates or replaces; what is absent has its default.
func (s *Server) putTenant(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if !validTenantID(id) {
		return refuse(invalid, "id", "must be "+tenantIDRule)
	}
	t := journal.Tenant{ID: id, Tier: "default"}
	o, err := s.readTenant(w, r, &t)
	if err != nil {
		return err
	}
	if t.ID != id {
		o.bad("id", "must be the path's, or absent")
	}
	if err := o.err(); err != nil {
		return err
	}
	return s.alone(r.Context(), func() error {
		old, exists := s.registry.Tenant(id)
		if !exists {
			return s.storeTenant(w, r, t, http.StatusCreated)
		}
		if old.Deleted {
			return refuse(conflict, "id", "was used before; ids are never given again")
		}
		old.Name, old.Tier, old.Suspended, old.Grants = t.Name, t.Tier, t.Suspended, t.Grants
		return s.storeTenant(w, r, old, http.StatusOK)
	})
}

func (s *Server) storeTenant(w http.ResponseWriter, r *http.Request, t journal.Tenant, status int) error {
	stored, err := s.fanout.PutTenant(r.Context(), t)
	if err != nil {
		return err
	}
	if status == http.StatusCreated {
		w.Header().Set("Location", "/v1/tenants/"+stored.ID)
	}
	return reply(w, status, viewTenant(&stored))
}

func (s *Server) readTenant(w http.ResponseWriter, r *http.Request, t *journal.Tenant) (*object, error) {
	if err := plain(r); err != nil {
		return nil, err
	}
	o, err := s.readObject(w, r, false)
	if err != nil {
		return nil, err
	}
	o.read("id", nil, parseText(&t.ID, tenantIDRule, validTenantID))
	o.read("name", nil, parseText(&t.Name, "text of at most 256 bytes without control characters", validName))
	tiers := *s.tierNames.Load()
	o.read("tier", nil, parseText(&t.Tier, "one of "+strings.Join(tiers, ", "), func(v string) bool { return slices.Contains(tiers, v) }))
	var grants []string
	o.read("grants", nil, parsePatterns(&grants, 0, maxGrants))
	t.Grants = []journal.Grant{{Topics: grants}}
	o.read("suspended", nil, parseBool(&t.Suspended))
	return o, nil
}

// validName also refuses U+FFFD, which is what is left of an escape that is no character.
func validName(s string) bool {
	return len(s) <= 256 && !strings.ContainsFunc(s, unicode.IsControl) && !strings.ContainsRune(s, utf8.RuneError)
}

func (s *Server) deleteTenant(w http.ResponseWriter, r *http.Request) error {
	if err := plain(r); err != nil {
		return err
	}
	id := r.PathValue("id")
	return s.alone(r.Context(), func() error {
		if _, err := s.tenant(r, id); err != nil {
			return err
		}
		if err := s.fanout.DeleteTenant(r.Context(), id); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}
