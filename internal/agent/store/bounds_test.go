package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// The weight is the length, and down to a depth of 5 it is 400 more for each container, each comma in an array and
// each null, and 100 for each comma in an object.
func TestAValueHasAWeight(t *testing.T) {
	for text, want := range map[string]int{
		`1`:                  1,
		`{"a":1,"b":2}`:      13 + 400 + 100,
		`{"n":null,"b":[1]}`: 18 + 400 + 400 + 100 + 400,
		`[{},{}]`:            7 + 4*400,
		`["a,{n","\",["]`:    15 + 2*400,
		`[[[[[0,0]]]]]`:      13 + 6*400,
		`[[[[[[0,0,[]]]]]]]`: 18 + 5*400,
		`}}}}}}[`:            7 + 400,
		`}}}}}},n`:           8 + 100 + 400,
	} {
		if got := weighValue([]byte(text)); got != want {
			t.Errorf("%s: weight %d, want %d", text, got, want)
		}
	}
}

// TestSmallValuesThatDecodeToManyAreRefused: empty records take three bytes each, and a hundred times
// that when they are decoded. A refused value is named, and the others are read.
func TestSmallValuesThatDecodeToManyAreRefused(t *testing.T) {
	m, config := newMember(t)
	m.secrets["atoll-inventory-a"] = newStateSecret(t, "atoll-inventory-a", kindRecords, []byte("["+strings.Repeat("{},", maxDecoded/(2*valueCost)+1)+"{}]"))
	one, err := json.Marshal([]ownership.Record{{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, UID: "u"}})
	if err != nil {
		t.Fatal(err)
	}
	m.secrets["atoll-inventory-b"] = newStateSecret(t, "atoll-inventory-b", kindRecords, one)
	_, contents := openStore(t, config, true)
	if len(contents.Broken) != 1 || !strings.Contains(contents.Broken[0], "atoll-inventory-a: "+errTooMuch.Error()) {
		t.Errorf("broken are %q", contents.Broken)
	}
	if len(contents.Records) != 1 || contents.Records[0].UID != "u" {
		t.Errorf("%d records are read", len(contents.Records))
	}
}

// newStateSecret returns a Secret of the state with a plain value.
func newStateSecret(t *testing.T, name, kind string, plain []byte) *corev1.Secret {
	t.Helper()
	data, _, err := encodeValue(json.RawMessage(plain))
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelKind: kind}}, Data: map[string][]byte{keyData: data}}
}

// TestTheStateEnds: a member lists ever more Secrets, page by page.
func TestTheStateEnds(t *testing.T) {
	value := bytes.Repeat([]byte("x"), 64<<10)
	pages := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !strings.HasSuffix(r.URL.Path, "/secrets") {
			_ = json.NewEncoder(w).Encode(corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}) // the client waits
			return
		}
		list := corev1.SecretList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"}, ListMeta: metav1.ListMeta{Continue: "more"}}
		for i := range 4 {
			list.Items = append(list.Items, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d-%d", pages, i)}, Data: map[string][]byte{keyData: value}})
		}
		pages++
		_ = json.NewEncoder(w).Encode(list) // the client waits
	}))
	t.Cleanup(server.Close)
	s, err := New(&rest.Config{Host: server.URL}, "atoll-agent", nil)
	if err != nil {
		t.Fatal(err)
	}
	// A Secret counts 64 KiB of data, 1 KiB, and its names: the 16th is over a MiB.
	if _, err := s.list(t.Context(), 1<<20); err == nil || !strings.Contains(err.Error(), "more than 1 MiB") || pages != 4 {
		t.Errorf("%d pages of four Secrets are read, %v", pages, err)
	}
}
