package atoll

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
)

// A manifest's JSON goes by a hash, or agents would get it with every change: each such field of
// its lists is among the Parts.
func TestPartsOfAManifest(t *testing.T) {
	var m Manifest
	var want []string
	v := reflect.ValueOf(&m).Elem()
	for i := range v.NumField() {
		list := v.Field(i)
		if list.Kind() != reflect.Slice || list.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		one := reflect.New(list.Type().Elem()).Elem()
		for j := range one.NumField() {
			if one.Field(j).Type() != reflect.TypeFor[json.RawMessage]() {
				continue
			}
			name := v.Type().Field(i).Name
			one.FieldByName("Hash").SetString(name)
			one.Field(j).SetBytes([]byte(`"` + name + `"`))
			list.Set(reflect.Append(list, one))
			want = append(want, name)
		}
	}
	var got []string
	for hash, part := range m.HashedParts() {
		if found, ok := m.FindPart(hash); !ok || string(found) != string(*part) || string(found) != `"`+hash+`"` {
			t.Errorf("%s: found %s, %t", hash, found, ok)
		}
		got = append(got, hash)
	}
	if len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("parts %v, and the manifest holds JSON in %v", got, want)
	}
	m.Items = append(m.Items, RenderedItem{Hash: "broken", Error: "a patch does not apply"})
	bare := m.WithoutParts()
	for hash, part := range bare.HashedParts() {
		if len(*part) > 0 || hash == "broken" {
			t.Errorf("%q: %s is left", hash, *part)
		}
	}
	if _, ok := m.FindPart("Items"); !ok {
		t.Error("what was bared shares its items with what it was made of")
	}
	if _, ok := bare.FindPart("Items"); ok {
		t.Error("what is absent is found")
	}
}
