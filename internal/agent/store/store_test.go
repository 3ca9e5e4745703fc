package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// fakeMember serves the Secrets of a namespace, as an API server with resource versions does.
type fakeMember struct {
	t      *testing.T
	decode runtime.Decoder

	mu        sync.Mutex
	namespace bool
	secrets   map[string]*corev1.Secret
	version   int
	writes    []string
}

func newMember(t *testing.T) (*fakeMember, *rest.Config) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	m := &fakeMember{t: t, decode: serializer.NewCodecFactory(scheme).UniversalDeserializer(), secrets: map[string]*corev1.Secret{}}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return m, &rest.Config{Host: server.URL}
}

func (m *fakeMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, _ := io.ReadAll(r.Body) // what is missing does not decode
	w.Header().Set("Content-Type", "application/json")
	answer := m.answerRequest(r, body)
	if s, failed := answer.(metav1.Status); failed {
		s.TypeMeta, s.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
		w.WriteHeader(int(s.Code))
		answer = s
	}
	_ = json.NewEncoder(w).Encode(answer) // the client has gone
}

func (m *fakeMember) answerRequest(r *http.Request, body []byte) any {
	missing := metav1.Status{Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if !slices.Contains(parts, "secrets") { // a namespace
		if r.Method == http.MethodPost {
			m.namespace = true
		}
		if !m.namespace {
			return missing
		}
		return corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	}
	if r.Method == http.MethodGet && parts[len(parts)-1] == "secrets" {
		out := corev1.SecretList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"}}
		for _, s := range m.secrets {
			out.Items = append(out.Items, *s)
		}
		return out
	}
	name := parts[len(parts)-1]
	secret := &corev1.Secret{}
	if len(body) > 0 && r.Method != http.MethodDelete {
		if _, _, err := m.decode.Decode(body, nil, secret); err != nil {
			m.t.Error(err)
		}
		name = secret.Name
	}
	old := m.secrets[name]
	if r.Method != http.MethodGet {
		m.writes = append(m.writes, r.Method+" "+name)
	}
	switch {
	case !m.namespace, old == nil && r.Method != http.MethodPost:
		return missing
	case r.Method == http.MethodGet:
		return old
	case r.Method == http.MethodDelete:
		delete(m.secrets, name)
		return old
	case r.Method == http.MethodPost && old != nil:
		return metav1.Status{Reason: metav1.StatusReasonAlreadyExists, Code: http.StatusConflict}
	case r.Method == http.MethodPut && old.ResourceVersion != secret.ResourceVersion:
		return metav1.Status{Reason: metav1.StatusReasonConflict, Code: http.StatusConflict}
	}
	m.version++
	secret.ResourceVersion = strconv.Itoa(m.version)
	secret.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	m.secrets[name] = secret
	return secret
}

// takeWrites returns the writes since the last call.
func (m *fakeMember) takeWrites() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { m.writes = nil }()
	return m.writes
}

func (m *fakeMember) secretNames() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.secrets {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// openStore opens a Store whose fence is as given.
func openStore(t *testing.T, config *rest.Config, fenced bool) (*AgentStore, StoredContents) {
	t.Helper()
	s, err := New(config, "atoll-agent", func(context.Context) bool { return fenced })
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func newBundle(uid string, order int64, size int) Bundle {
	b := Bundle{Position: Position{Chain: "c", Revision: 7, Order: order}}
	b.Holding.Manifest.Bundle = uid
	noise := make([]byte, size/2)
	_, _ = rand.Read(noise) // it never fails
	b.Position.MAC = noise
	return b
}

// Stored contents come back after a restart, with the newest position of all.
func TestContentsComeBack(t *testing.T) {
	m, config := newMember(t)
	s, c := openStore(t, config, true)
	if len(c.Bundles)+len(c.Records)+len(c.Broken) > 0 || !m.namespace {
		t.Fatalf("at first there is %+v", c)
	}
	for _, err := range []error{
		s.PutBundle(t.Context(), newBundle("a", 3, 0)), s.PutBundle(t.Context(), newBundle("b", 9, 0)),
		s.PutRecords(t.Context(), "1", []ownership.Record{{Key: atoll.ItemKey{Kind: "ConfigMap", Name: "a"}}, {Key: atoll.ItemKey{Kind: "ConfigMap", Name: "b"}}}),
		s.PutReports(t.Context(), Reports{Last: map[string]atoll.RowStatus{"a": {Generation: 4}}, Position: Position{Order: 5}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, c = openStore(t, config, true)
	if len(c.Bundles) != 2 || len(c.Records) != 2 || c.Reports.Last["a"].Generation != 4 || c.Position.Order != 9 || len(c.Broken) > 0 {
		t.Errorf("after a restart there is %+v", c)
	}
	if err := s.PutReports(t.Context(), Reports{Position: Position{Order: 10}}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.DropBundle(t.Context(), "a"), s.DropBundle(t.Context(), "unknown"), s.PutRecords(t.Context(), "1", nil)); err != nil {
		t.Fatal(err)
	}
	_, c = openStore(t, config, true)
	if len(c.Bundles) != 1 || c.Bundles[0].Holding.Manifest.Bundle != "b" || len(c.Records) != 0 || c.Position.Order != 10 {
		t.Errorf("after the removals there is %+v", c)
	}
}

// A value that no Secret holds goes into several. Its former parts go when the new ones are named.
func TestALargeValueIsSplit(t *testing.T) {
	m, config := newMember(t)
	s, _ := openStore(t, config, true)
	large := newBundle("a", 1, 3*maxPart)
	if err := s.PutBundle(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	writes := m.takeWrites()
	if last := writes[len(writes)-1]; len(writes) < 3 || last != "POST atoll-bundle-a" {
		t.Errorf("the head is not written last: %q", writes)
	}
	for _, secret := range m.secrets {
		if size := len(secret.Data[keyData]) + len(secret.Data[keyParts]); size > maxPart {
			t.Errorf("%s holds %d bytes", secret.Name, size)
		}
	}
	if _, c := openStore(t, config, true); len(c.Bundles) != 1 || !slices.Equal(c.Bundles[0].Position.MAC, large.Position.MAC) {
		t.Error("it does not come back")
	}
	if err := s.PutBundle(t.Context(), newBundle("a", 2, 0)); err != nil {
		t.Fatal(err)
	}
	if got := m.secretNames(); !slices.Equal(got, []string{"atoll-bundle-a"}) {
		t.Errorf("what stays is %q", got)
	}
	if err := s.PutBundle(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	if err := s.DropBundle(t.Context(), "a"); err != nil || len(m.secretNames()) > 0 {
		t.Errorf("after the drop: %q, %v", m.secretNames(), err)
	}
}

// A value that cannot be read is named, and is not taken as missing: its parts stay.
func TestADamagedValueIsNamed(t *testing.T) {
	m, config := newMember(t)
	s, _ := openStore(t, config, true)
	if err := errors.Join(s.PutBundle(t.Context(), newBundle("a", 1, 3*maxPart)), s.PutBundle(t.Context(), newBundle("b", 2, 0)), s.PutBundle(t.Context(), newBundle("c", 3, 0))); err != nil {
		t.Fatal(err)
	}
	before := len(m.secretNames())
	m.secrets["atoll-bundle-b"].Data[keyData] = []byte("damaged")
	for name := range m.secrets {
		if strings.HasPrefix(name, "atoll-part-") {
			delete(m.secrets, name)
			break
		}
	}
	_, c := openStore(t, config, true)
	if len(c.Bundles) != 1 || len(c.Broken) != 2 {
		t.Errorf("it reads %d Bundles, and %q are broken", len(c.Bundles), c.Broken)
	}
	if got := len(m.secretNames()); got != before-1 {
		t.Errorf("of %d Secrets, %d stay", before-1, got)
	}
}

// A small Secret cannot stand for a value that fills the memory: a member may be hostile to the
// hub that pushes to it.
func TestValuesHaveABound(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	zeros := make([]byte, 1<<20)
	for range maxValue>>20 + 1 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var b Bundle
	left := memoryAllowance(maxDecoded)
	if err := decodeValue(packed.Bytes(), &b, &left); !errors.Is(err, errTooLarge) {
		t.Errorf("%d bytes of %d are decoded: %v", packed.Len(), maxValue+1<<20, err)
	}
	names, err := json.Marshal(slices.Repeat([]string{"part"}, maxValue/maxPart+1))
	if err != nil {
		t.Fatal(err)
	}
	head := &corev1.Secret{Data: map[string][]byte{keyParts: names}}
	all := map[string]*corev1.Secret{"part": {Data: map[string][]byte{keyData: make([]byte, maxPart)}}}
	if _, _, err := assembleParts(head, all); !errors.Is(err, errTooLarge) {
		t.Errorf("one part is assembled %d times: %v", maxValue/maxPart+1, err)
	}
}

// Parts that nothing names are collected when all can be read.
func TestOrphanedPartsAreCollected(t *testing.T) {
	m, config := newMember(t)
	s, _ := openStore(t, config, true)
	if err := s.PutBundle(t.Context(), newBundle("a", 1, 3*maxPart)); err != nil {
		t.Fatal(err)
	}
	delete(m.secrets, "atoll-bundle-a")
	if openStore(t, config, true); len(m.secretNames()) > 0 {
		t.Errorf("what stays is %q", m.secretNames())
	}
}

// Over another writer's version, only the holder of the lease writes.
func TestAnotherWriterIsFenced(t *testing.T) {
	for _, holds := range []bool{true, false} {
		m, config := newMember(t)
		first, _ := openStore(t, config, true)
		if err := first.PutBundle(t.Context(), newBundle("a", 1, 0)); err != nil {
			t.Fatal(err)
		}
		second, _ := openStore(t, config, holds)
		if err := first.PutBundle(t.Context(), newBundle("a", 2, 0)); err != nil {
			t.Fatal(err)
		}
		stored := m.secrets["atoll-bundle-a"].ResourceVersion
		err := second.PutBundle(t.Context(), newBundle("a", 3, 0))
		if holds != (err == nil) || !holds && !errors.Is(err, ErrFenced) {
			t.Errorf("with the lease (%t): %v", holds, err)
		}
		if changed := m.secrets["atoll-bundle-a"].ResourceVersion != stored; changed != holds {
			t.Errorf("with the lease (%t), it is written: %t", holds, changed)
		}
	}
}

// A namespace that was deleted is made again, and what is stored goes there.
func TestADeletedNamespaceIsMadeAgain(t *testing.T) {
	m, config := newMember(t)
	s, _ := openStore(t, config, true)
	if err := s.PutBundle(t.Context(), newBundle("a", 1, 0)); err != nil {
		t.Fatal(err)
	}
	m.namespace, m.secrets = false, map[string]*corev1.Secret{}
	if err := s.PutBundle(t.Context(), newBundle("a", 2, 0)); err != nil || len(m.secretNames()) != 1 || !m.namespace {
		t.Errorf("%v: %q", err, m.secretNames())
	}
}

// Numbers increase strictly over restarts, and few calls write.
func TestSequencesNeverRepeat(t *testing.T) {
	m, config := newMember(t)
	s, _ := openStore(t, config, true)
	m.takeWrites()
	last := int64(0)
	for range 3 {
		n, err := s.NextSequence(t.Context())
		if err != nil || n != last+1 {
			t.Fatalf("after %d comes %d, %v", last, n, err)
		}
		last = n
	}
	if writes := m.takeWrites(); len(writes) != 1 {
		t.Errorf("three numbers write %q", writes)
	}
	s, _ = openStore(t, config, true)
	n, err := s.NextSequence(t.Context())
	if err != nil || n <= last || n > last+seqBlock {
		t.Errorf("after a restart comes %d, %v", n, err)
	}
}

func TestTheIdentityComesBack(t *testing.T) {
	m, config := newMember(t)
	s, _ := openStore(t, config, true)
	if id, err := s.LoadIdentity(t.Context()); id != nil || err != nil {
		t.Errorf("at first: %+v, %v", id, err)
	}
	if err := s.PutIdentity(t.Context(), Identity{KeyPEM: []byte("key"), Hub: "h", Before: &Identity{Hub: "old"}}); err != nil {
		t.Fatal(err)
	}
	again, err := New(config, "atoll-agent", func(context.Context) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	id, err := again.LoadIdentity(t.Context())
	if err != nil || string(id.KeyPEM) != "key" || id.Before.Hub != "old" {
		t.Fatalf("%+v, %v", id, err)
	}
	if err := again.PutIdentity(t.Context(), *id); err != nil {
		t.Errorf("a writer that has read it is fenced: %v", err)
	}
	m.secrets[nameIdentity].Data[keyData] = []byte("damaged")
	if id, err := s.LoadIdentity(t.Context()); err == nil || id != nil {
		t.Errorf("damaged, it is %+v, %v", id, err)
	}
}
