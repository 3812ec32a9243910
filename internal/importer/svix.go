package importer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The part of Svix's API that matters here: ApplicationOut, EndpointOut, EndpointSecretOut, EndpointHeadersOut,
// EndpointTransformationOut, with what belongs to an object inside it.
type (
	svixApplication struct {
		ID, UID, Name string
		RateLimit     *int
		ThrottleRate  *int
		Metadata      map[string]string
		Endpoints     list[svixEndpoint]
	}
	svixEndpoint struct {
		ID, UID, URL, Description string
		Disabled                  bool
		FilterTypes, Channels     []string
		RateLimit, ThrottleRate   *int
		Metadata                  map[string]string
		Secret                    *svixSecret
		Headers                   *svixHeaders
		Transformation            *svixTransformation
	}
	svixSecret  struct{ Key string }
	svixHeaders struct {
		Headers   map[string]string
		Sensitive []string
	}
	svixTransformation struct{ Enabled bool }
)

// Svix reads an export: a file {"applications": [..]}, in which an application has its endpoints, and an endpoint
// its secret and headers; or a directory of answers of the API as they are (docs/migrating.md).
func Svix(path string) (*Result, error) {
	apps, err := svixExport(path)
	if err != nil {
		return nil, err
	}
	w := newWork()
	for i := range apps {
		if err := w.svixApplication(&apps[i]); err != nil {
			return nil, err
		}
	}
	return w.result("Svix")
}

func svixExport(path string) ([]svixApplication, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return svixDirectory(path)
	}
	var file struct{ Applications *list[svixApplication] }
	if err := readJSON(path, &file); err != nil {
		return nil, err
	}
	if file.Applications == nil {
		return nil, fmt.Errorf("%s: applications: is missing", path)
	}
	if file.Applications.more {
		return nil, fmt.Errorf("%s: applications: is one page of several (done is false); fetch the others", path)
	}
	return file.Applications.items, nil
}

// svixDirectory reads applications*.json and, by the ids of applications and endpoints, endpoints/APP*.json,
// secrets/ENDPOINT.json, headers/ENDPOINT.json, transformations/ENDPOINT.json.
func svixDirectory(dir string) ([]svixApplication, error) {
	apps, err := pages[svixApplication](dir, "applications")
	if err != nil {
		return nil, err
	}
	if apps == nil {
		return nil, fmt.Errorf("%s: applications.json: is missing", dir)
	}
	for i := range apps {
		if apps[i].Endpoints.items, err = pages[svixEndpoint](filepath.Join(dir, "endpoints"), apps[i].ID); err != nil {
			return nil, err
		}
		for j := range apps[i].Endpoints.items {
			e := &apps[i].Endpoints.items[j]
			if err := errors.Join(
				readOptional(filepath.Join(dir, "secrets", e.ID+".json"), &e.Secret),
				readOptional(filepath.Join(dir, "headers", e.ID+".json"), &e.Headers),
				readOptional(filepath.Join(dir, "transformations", e.ID+".json"), &e.Transformation),
			); err != nil {
				return nil, err
			}
		}
	}
	return apps, nil
}

// pages reads NAME.json and NAME.*.json, the pages of one list; nil without any.
func pages[T any](dir, name string) (all []T, err error) {
	if name == "" || strings.ContainsAny(name, `/\*?[`) {
		return nil, fmt.Errorf("%s: an id of the export is no id: %q", dir, clip(name))
	}
	files, err := filepath.Glob(filepath.Join(dir, name+".*json"))
	if err != nil {
		return nil, err
	}
	last := len(files) == 0
	for _, file := range files {
		var l list[T]
		if err := readJSON(file, &l); err != nil {
			return nil, err
		}
		all, last = append(all, l.items...), last || !l.more
	}
	if !last {
		return nil, fmt.Errorf("%s: the last page is missing (done is false in all)", filepath.Join(dir, name+".json"))
	}
	return all, nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: is not the JSON that was expected: %s", path, jsonReason(err))
	}
	return nil
}

// jsonReason says where, and not what stands there.
func jsonReason(err error) string {
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
		return fmt.Sprintf("%s must be %s", wrong.Field, wrong.Type)
	}
	if wrong := new(json.SyntaxError); errors.As(err, &wrong) {
		return fmt.Sprintf("near byte %d", wrong.Offset)
	}
	return err.Error()
}

func readOptional(path string, into any) error {
	if err := readJSON(path, into); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (w *work) svixApplication(a *svixApplication) error {
	object := "application " + a.ID
	t := tenant{ID: w.id(object, "uid", a.UID, a.ID), Name: w.label(object, "name", a.Name)}
	if t.ID == "" {
		return fmt.Errorf("%s: has neither a uid nor an id that can be a tenant's", object)
	}
	if first, twice := w.ids[t.ID]; twice {
		return fmt.Errorf("%s: its tenant's id, %s, is that of %s", object, t.ID, first)
	}
	w.ids[t.ID] = object
	if a.RateLimit != nil || a.ThrottleRate != nil {
		w.note(object, "rateLimit", "limits what is posted: set inbound of a tier, and put the tenant into it")
	}
	if len(a.Metadata) > 0 {
		w.note(object, "metadata", "is not kept (%s)", keys(a.Metadata))
	}
	if a.Endpoints.more {
		return fmt.Errorf("%s: endpoints: is one page of several (done is false); fetch the others", object)
	}
	w.Tenants = append(w.Tenants, t)
	for i := range a.Endpoints.items {
		w.svixEndpoint(t.ID, &a.Endpoints.items[i])
	}
	return nil
}

func (w *work) svixEndpoint(tenantID string, e *svixEndpoint) {
	object := "endpoint " + e.ID
	s := subscription{
		Tenant: tenantID, Name: w.id(object, "uid", e.UID, e.ID), URL: e.URL, Paused: e.Disabled,
		Topics: []string{">"}, Signature: &signature{Profile: "svix"},
	}
	if len(e.FilterTypes) > 0 {
		if s.Topics = w.topics(object, "filterTypes", e.FilterTypes); len(s.Topics) == 0 {
			w.note(object, "filterTypes", "left nothing to subscribe to: the endpoint is not imported")
			return
		}
	}
	if limit := first(e.ThrottleRate, e.RateLimit); limit != nil {
		s.Rate = strconv.Itoa(*limit) + "/s"
	}
	w.svixChannels(object, &s, e.Channels)
	w.svixKeys(object, &s, e)
	if e.Transformation != nil && e.Transformation.Enabled {
		s.Paused = true
		w.note(object, "transformation", "does not map: imported paused; an envelope of the configuration may do")
	}
	if e.Description != "" {
		w.note(object, "description", "is not kept")
	}
	if len(e.Metadata) > 0 {
		w.note(object, "metadata", "is not kept (%s)", keys(e.Metadata))
	}
	w.subscribe(s)
}

func first(list ...*int) *int {
	for _, n := range list {
		if n != nil {
			return n
		}
	}
	return nil
}

func keys(m map[string]string) string {
	return clip(strings.Join(slices.Sorted(maps.Keys(m)), ", "))
}

// svixChannels maps one channel to an attribute; any of several is nothing that a filter of equality can say.
func (w *work) svixChannels(object string, s *subscription, channels []string) {
	switch len(channels) {
	case 0:
	case 1:
		s.Match = map[string]string{"channel": channels[0]}
		w.note(object, "channels", "became match: {channel: %s}: post triggers of this channel with Fairlane-Attribute-Channel", channels[0])
	default:
		s.Paused = true
		w.note(object, "channels", "several do not map: imported paused; make one subscription for each, with match: {channel: ...}")
	}
}

func (w *work) svixKeys(object string, s *subscription, e *svixEndpoint) {
	if e.Secret == nil || e.Secret.Key == "" {
		w.note(object, "secret", "is not in the export: the service makes another, which the receiver must be given")
	} else {
		s.Secrets = []string{w.secret("SECRET_"+e.ID, svixKey(e.Secret.Key))}
	}
	if e.Headers == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers.Headers)) {
		w.header(object, s, e.ID, name, e.Headers.Headers[name])
	}
	for _, name := range e.Headers.Sensitive {
		w.header(object, s, e.ID, name, "")
		w.note(object, "headers."+name, "is hidden in the export: fill in its line of the file of secrets, else apply refuses")
	}
}

// svixKey is a key of Svix in a form that is read here: those of unusual lengths keep their bytes.
func svixKey(key string) string {
	encoded := strings.TrimPrefix(key, "whsec_")
	b, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case strings.HasPrefix(key, "whsk_"):
		return key
	case err == nil && len(b) >= 24 && len(b) <= 64:
		return "whsec_" + encoded
	}
	return "base64:" + encoded
}
