package server

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlane-dev/fairlane/internal/fanout"
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

// tenantPatch is what a change of a tenant reads.
type tenantPatch struct {
	Name      string `json:"name,omitempty" null:"default"`
	Tier      string `json:"tier,omitempty" null:"default"`
	Suspended bool   `json:"suspended,omitempty" null:"default"`

	Grants []string `json:"grants,omitempty" null:"default"`
}

func viewTenant(t *journal.Tenant) tenantView {
	grants, known := t.Granted()
	if !known {
		grants = []string{">"} // made by a release without grants
	}
	return tenantView{Grants: append([]string{}, grants...), ID: t.ID, Name: t.Name, Tier: t.Tier, Suspended: t.Suspended, Created: t.Created}
}

func (s *Server) listTenants(w http.ResponseWriter, r *http.Request) error {
	q, err := readQuery(r)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, pageOf(q, s.registry.Tenants(),
		func(t *journal.Tenant) uint64 { return uint64(t.Number) },
		func(t *journal.Tenant) bool { return !t.Deleted },
		viewTenant))
}

func (s *Server) getTenant(w http.ResponseWriter, r *http.Request) error {
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
	return s.alone(w, r, func() (int, any, error) {
		if _, exists := s.registry.Tenant(t.ID); exists {
			return 0, nil, refuse(conflict, "id", "exists or was used before; ids are never given again")
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
	return s.alone(w, r, func() (int, any, error) {
		old, exists := s.registry.Tenant(id)
		if !exists {
			return s.storeTenant(w, r, t, http.StatusCreated)
		}
		if old.Deleted {
			return 0, nil, refuse(conflict, "id", "was used before; ids are never given again")
		}
		old.Name, old.Tier, old.Suspended, old.Grants = t.Name, t.Tier, t.Suspended, t.Grants
		return s.storeTenant(w, r, old, http.StatusOK)
	})
}

func (s *Server) storeTenant(w http.ResponseWriter, r *http.Request, t journal.Tenant, status int) (int, any, error) {
	stored, err := s.fanout.PutTenant(r.Context(), t)
	if err != nil {
		return 0, nil, err
	}
	if status == http.StatusCreated {
		w.Header().Set("Location", "/v1/tenants/"+stored.ID)
	}
	return status, viewTenant(&stored), nil
}

func (s *Server) readTenant(w http.ResponseWriter, r *http.Request, t *journal.Tenant) (*object, error) {
	o, err := s.readObject(w, r, false)
	if err == nil {
		o.read("id", nil, parseText(&t.ID, tenantIDRule, validTenantID))
		readTenantFields(o, t, *s.tiers.Load())
	}
	return o, err
}

// readTenantFields reads what can be changed.
func readTenantFields(o *object, t *journal.Tenant, tiers map[string]fanout.Tier) {
	o.read("name", func() { t.Name = "" }, parseText(&t.Name, "text of at most 256 bytes without control characters", validName))
	names := slices.Sorted(maps.Keys(tiers))
	o.read("tier", func() { t.Tier = "default" }, parseText(&t.Tier, "one of "+strings.Join(names, ", "), func(v string) bool { return slices.Contains(names, v) }))
	o.read("grants", func() { t.Grants = []journal.Grant{{}} }, func(raw json.RawMessage) string {
		var grants []string
		rule := parsePatterns(&grants, 0, maxGrants)(raw)
		t.Grants = []journal.Grant{{Topics: grants}}
		return rule
	})
	o.read("suspended", func() { t.Suspended = false }, parseBool(&t.Suspended))
}

// patchTenant is PATCH /v1/tenants/{id}, a JSON merge patch: what is absent stays, null restores the
// default. Another tier changes limits, and refills nothing.
func (s *Server) patchTenant(w http.ResponseWriter, r *http.Request) error {
	o, err := s.readObject(w, r, true)
	if err != nil {
		return err
	}
	return s.alone(w, r, func() (int, any, error) {
		t, err := s.tenant(r, r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		readTenantFields(o, &t, *s.tiers.Load())
		if err := o.err(); err != nil {
			return 0, nil, err
		}
		return s.storeTenant(w, r, t, http.StatusOK)
	})
}

// validName also refuses U+FFFD, which is what is left of an escape that is no character.
func validName(s string) bool {
	return len(s) <= 256 && !strings.ContainsFunc(s, unicode.IsControl) && !strings.ContainsRune(s, utf8.RuneError)
}

func (s *Server) deleteTenant(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	return s.alone(w, r, func() (int, any, error) {
		if _, err := s.tenant(r, id); err != nil {
			return 0, nil, err
		}
		if err := s.fanout.DeleteTenant(r.Context(), id); err != nil {
			return 0, nil, err
		}
		return http.StatusNoContent, nil, nil
	})
}

// revokeLinks is POST /v1/tenants/{id}/links/revoke: every signed link made before opens nothing any more.
func (s *Server) revokeLinks(w http.ResponseWriter, r *http.Request) error {
	return s.alone(w, r, func() (int, any, error) {
		t, err := s.tenant(r, r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		t.Links++
		if _, err := s.fanout.PutTenant(r.Context(), t); err != nil {
			return 0, nil, err
		}
		return http.StatusNoContent, nil, nil
	})
}
