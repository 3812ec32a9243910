package server

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/fairlane-dev/fairlane/internal/journal"
)

// differences are the fields in which two views of an object differ, in the order of their names.
func differences(before, after any) (list []fieldChangeView) {
	a, b := fieldsOf(before), fieldsOf(after)
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if name != "created" && !reflect.DeepEqual(a[name], b[name]) {
			list = append(list, fieldChangeView{name, a[name], b[name]})
		}
	}
	return list
}

func fieldsOf(view any) (m map[string]any) {
	data, err := json.Marshal(view)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		panic("server: a view is no object: " + err.Error())
	}
	return m
}

// subscriptionDifferences names also what is never shown.
func subscriptionDifferences(a, b *journal.Subscription) []fieldChangeView {
	list := differences(viewSubscription(a), viewSubscription(b))
	x, y := &a.Requests, &b.Requests
	for _, hidden := range []struct {
		field string
		same  bool
	}{
		{"secrets", sameKeys(a.Secrets, b.Secrets) && sameKeys(x.Pairs, y.Pairs)},
		{"signature_beside.secrets", sameKeys(besideSecrets(x), besideSecrets(y))},
		{"headers", slices.Equal(x.Headers, y.Headers)},
		{"client_certificate", bytes.Equal(x.Certificate, y.Certificate) && bytes.Equal(x.Key, y.Key)},
	} {
		known := slices.ContainsFunc(list, func(f fieldChangeView) bool { return f.Field == hidden.field })
		if !hidden.same && !known {
			list = append(list, fieldChangeView{Field: hidden.field})
		}
	}
	return list
}

func besideSecrets(r *journal.Requests) [][]byte {
	if r.Beside == nil {
		return nil
	}
	return r.Beside.Secrets
}

func sameKeys(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
