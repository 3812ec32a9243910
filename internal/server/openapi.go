package server

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
)

type doc = map[string]any

// openAPI is the document of the whole API, made of the table of routes and of the types that they read
// and answer.
func openAPI(version string) []byte {
	types := schemas{}
	paths := doc{}
	for i := range routes {
		rt := &routes[i]
		item, ok := paths[rt.path].(doc)
		if !ok {
			item = doc{}
			paths[rt.path] = item
		}
		item[strings.ToLower(rt.method)] = rt.operation(types)
	}
	out, err := json.Marshal(doc{
		"openapi": "3.1.0",
		"info": doc{"title": "Fairlane", "version": version, "license": doc{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "Delivers every trigger to every subscriber, and lets no tenant slow another down. The paths' version is the API's; what is added to an answer is no new version."},
		"servers": []doc{{"url": "/"}},
		"paths":   paths,
		"components": doc{
			"schemas":         types,
			"securitySchemes": doc{"key": doc{"type": "http", "scheme": "bearer"}},
			"responses": doc{"Problem": doc{"description": "Refused, or failed (RFC 9457)",
				"content": doc{"application/problem+json": doc{"schema": types.of(reflect.TypeFor[body]())}}}},
		},
	})
	if err != nil {
		panic("server: openapi: " + err.Error())
	}
	return out
}

// operation describes one row.
func (rt *route) operation(types schemas) doc {
	op := doc{"operationId": operationID(rt), "summary": rt.summary, "responses": rt.responses(types)}
	if params := rt.parameters(); len(params) > 0 {
		op["parameters"] = params
	}
	if rt.may != anyone {
		op["security"] = []doc{{"key": []string{}}}
		op["description"] = "For keys of the roles " + rt.may.String() + "."
	}
	switch rt.in {
	case nil:
	case payload{}:
		op["requestBody"] = doc{"content": doc{"*/*": doc{"schema": doc{}}}}
	default:
		media := "application/json"
		content := doc{media: doc{"schema": types.of(reflect.TypeOf(rt.in))}}
		if rt.method == http.MethodPatch {
			content["application/merge-patch+json"] = content[media]
		}
		op["requestBody"] = doc{"required": true, "content": content}
	}
	return op
}

// operationID is "get_v1_tenants_id".
func operationID(rt *route) string {
	words := strings.FieldsFunc(rt.path, func(r rune) bool { return strings.ContainsRune("/{}.", r) })
	return strings.ToLower(rt.method) + "_" + strings.Join(words, "_")
}

func (r role) String() string {
	var names []string
	for _, n := range roleNames {
		if r&n.role != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ", ")
}

// responses are what success looks like, and the problem that everything else is.
func (rt *route) responses(types schemas) doc {
	success := doc{"description": http.StatusText(rt.status)}
	if rt.out != nil {
		success["content"] = doc{"application/json": doc{"schema": types.of(reflect.TypeOf(rt.out))}}
	}
	all := doc{strconv.Itoa(rt.status): success, "default": doc{"$ref": "#/components/responses/Problem"}}
	switch {
	case rt.method == http.MethodPut:
		all["201"] = success
	case rt.method == http.MethodPost && rt.path == "/v1/replays":
		all["200"] = success // a dry run
	case rt.path == "/readyz":
		all["503"] = success
	}
	return all
}

// parameters are those of the path, the query and the headers.
func (rt *route) parameters() (list []doc) {
	for _, part := range strings.Split(rt.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			list = append(list, doc{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": doc{"type": "string"}})
		}
	}
	for _, name := range rt.takes {
		p, known := parameters[name]
		if !known {
			panic("server: openapi: parameter " + name + " has no description")
		}
		in := "query"
		if name[0] < 'a' {
			in = "header"
		}
		list = append(list, doc{"name": name, "in": in, "description": p.about, "schema": p.schema})
	}
	return list
}

// schemas collects the schemas of the structs that it meets.
type schemas doc

var timeType = reflect.TypeFor[time.Time]()

// of is the schema of t, a reference if it is a struct.
func (c schemas) of(t reflect.Type) doc {
	if t == timeType {
		return doc{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return c.of(t.Elem())
	case reflect.Interface:
		return doc{}
	case reflect.Bool:
		return doc{"type": "boolean"}
	case reflect.String:
		return doc{"type": "string"}
	case reflect.Float64:
		return doc{"type": "number"}
	case reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return doc{"type": "integer"}
	case reflect.Slice:
		return doc{"type": "array", "items": c.of(t.Elem())}
	case reflect.Map:
		return doc{"type": "object", "additionalProperties": c.of(t.Elem())}
	case reflect.Struct:
		return c.object(t)
	}
	panic("server: openapi: no schema for " + t.String())
}

func (c schemas) object(t reflect.Type) doc {
	name := schemaName(t)
	ref := doc{"$ref": "#/components/schemas/" + name}
	if _, known := c[name]; known {
		return ref
	}
	patch := strings.HasSuffix(t.Name(), "Patch")
	props, required := doc{}, []string{}
	s := doc{"type": "object", "properties": props}
	c[name] = s
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || tag == "" || tag == "-" || f.Tag.Get("null") == "only" && !patch {
			continue
		}
		props[tag] = c.property(&f, patch)
		if !strings.Contains(options, "omit") {
			required = append(required, tag)
		}
	}
	if patch || strings.HasSuffix(t.Name(), "In") { // objects are read strictly
		s["additionalProperties"] = false
	}
	if len(required) > 0 {
		s["required"] = required
	}
	return ref
}

// property is the schema of a field. The tag null says that in a patch it may be null, which restores the default,
// or may be null alone; the tag enum lists the values, also names another type that is read.
func (c schemas) property(f *reflect.StructField, patch bool) doc {
	null := patch && f.Tag.Get("null") != ""
	if f.Tag.Get("null") == "only" {
		return doc{"type": "null"}
	}
	s := c.of(f.Type)
	if enum := f.Tag.Get("enum"); enum != "" {
		var words []any
		for word := range strings.SplitSeq(enum, ",") {
			words = append(words, word)
		}
		if null {
			words = append(words, nil)
		}
		s["enum"] = words
	}
	if s["$ref"] != nil && null {
		return doc{"anyOf": []doc{s, {"type": "null"}}}
	}
	if kind, plain := s["type"].(string); plain {
		kinds := []string{kind}
		if also := f.Tag.Get("also"); also != "" {
			kinds = append(kinds, also)
		}
		if null {
			kinds = append(kinds, "null")
		}
		s["type"] = kinds
	}
	return s
}

// schemaName is a type's name for readers: tenantView is Tenant, page[tenantView] is TenantPage.
func schemaName(t reflect.Type) string {
	name := t.Name()
	if outer, inner, generic := strings.Cut(name, "["); generic {
		inner = strings.TrimSuffix(inner[strings.LastIndexByte(inner, '.')+1:], "]")
		name = strings.TrimSuffix(inner, "View") + strings.ToUpper(outer[:1]) + outer[1:]
	}
	if t == reflect.TypeFor[body]() {
		return "Problem"
	}
	name = strings.TrimSuffix(name, "View")
	return strings.ToUpper(name[:1]) + name[1:]
}

// parameter is one of the query or of the headers.
type parameter struct {
	about  string
	schema doc
}

var parameters = map[string]parameter{
	"after":           {"The next of the page before", doc{"type": "string"}},
	"limit":           {"The most items of a page", doc{"type": "integer", "minimum": 1, "maximum": maxLimit, "default": defaultLimit}},
	"subscription":    {"What belongs to this subscription", doc{"type": "string"}},
	"reason":          {"Of these reasons, separated by commas", doc{"type": "string"}},
	"since":           {"At or after this instant (RFC 3339); of dead letters, when their trigger was accepted", doc{"type": "string", "format": "date-time"}},
	"until":           {"Before this instant (RFC 3339)", doc{"type": "string", "format": "date-time"}},
	"tenant":          {"What belongs to this tenant", doc{"type": "string"}},
	"kind":            {"Records of these kinds, separated by commas", doc{"type": "string"}},
	"state":           {"In these states, separated by commas: active, paused, disabled", doc{"type": "string"}},
	"Fairlane-Tenant": {"Whom it is for: a tenant's id, several separated by commas, or * for all; a tenant's key implies its own", doc{"type": "string"}},
	orderKeyHeader:    {"The attribute partitionkey: what is of one key goes in order to subscriptions that are ordered by key. Other attributes stand in Fairlane-Attribute-NAME", doc{"type": "string"}},
	"Idempotency-Key": {"A second request with the same key and content is answered as the first", doc{"type": "string"}},
}

func (s *Server) serveOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	w.Write(s.document)
	return nil
}
