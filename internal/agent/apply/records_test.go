package apply

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// refusingStore refuses to store records, or remembers them.
type refusingStore struct {
	memory
	refuses bool
	records map[string]ownership.Record // by key
}

func (s *refusingStore) PutRecords(_ context.Context, _ string, records []ownership.Record) error {
	if s.refuses {
		return errors.New("the member refuses the Secret")
	}
	for _, r := range records {
		s.records[r.Key.String()] = r
	}
	return nil
}

// Records that the member refused to store are stored by a later flush. A restarted agent would not
// know their objects otherwise.
func TestRefusedRecordsAreStoredLater(t *testing.T) {
	e := engineOn(t, newMemoryMember(t), shopNamespace, newManifest("b1", 1, confItem("x")))
	stored := &refusingStore{refuses: true, records: map[string]ownership.Record{}}
	e.o.Store = stored
	if f := settleKey(t, e, confKey); f != nil {
		t.Fatalf("%+v", f)
	}
	if err := e.storeChangedRecords(t.Context()); err == nil || !e.hasUnsavedShards() {
		t.Fatalf("the store refuses, and flush reports %v; records wait: %t", err, e.hasUnsavedShards())
	}
	stored.refuses = false
	if err := e.storeChangedRecords(t.Context()); err != nil || e.hasUnsavedShards() {
		t.Fatalf("flush reports %v; records wait: %t", err, e.hasUnsavedShards())
	}
	if r := stored.records[confKey.String()]; r.UID == "" || r.Applied != "hx" {
		t.Errorf("stored is %+v", r)
	}
}

// A pass logs that its records are not stored, and nothing while the agent stops or when they are stored.
func TestAPassLogsRecordsThatAreNotStored(t *testing.T) {
	for name, c := range map[string]struct {
		refuses, stops, want bool
	}{
		"stored":            {false, false, false},
		"refused":           {true, false, true},
		"refused at a stop": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e := engineOn(t, newMemoryMember(t), shopNamespace, newManifest("b1", 1, confItem("x")))
			if f := settleKey(t, e, confKey); f != nil {
				t.Fatalf("%+v", f)
			}
			e.o.Store = &refusingStore{refuses: c.refuses, records: map[string]ownership.Record{}}
			var log bytes.Buffer
			e.o.Log = slog.New(slog.NewTextHandler(&log, nil))
			if c.stops {
				cancel()
			}
			var running sync.WaitGroup
			e.runPass(ctx, nil, &running)
			running.Wait()
			if got := strings.Contains(log.String(), "inventory is not stored yet"); got != c.want {
				t.Errorf("a warning is logged: %t, want %t: %s", got, c.want, &log)
			}
		})
	}
}

// A pass ends after the work on its keys, also where a tier has one key only. A later tier starts after it.
func TestAPassWaitsForEachTier(t *testing.T) {
	second := confItem("x")
	second.Key.Name, second.Object = "conf2", bytes.ReplaceAll(second.Object, []byte(`"conf"`), []byte(`"conf2"`))
	for name, items := range map[string][]atoll.RenderedItem{"one key": {confItem("x")}, "two keys": {confItem("x"), second}} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t)
			e := engineOn(t, api, shopNamespace, newManifest("b1", 1, items...))
			var keys []atoll.ItemKey
			for _, it := range items {
				keys = append(keys, it.Key)
			}
			var running sync.WaitGroup
			e.runPass(t.Context(), keys, &running)
			api.mu.Lock()
			made := len(api.writes)
			api.mu.Unlock()
			running.Wait()
			if made != len(items) {
				t.Errorf("%d objects are made at the end of the pass, want %d", made, len(items))
			}
		})
	}
}

// A removal is stopped when its Bundle, or for a tombstone the same template in any Bundle, exists again.
func TestWhatIsWantedAgain(t *testing.T) {
	tombstone := atoll.Tombstone{Key: confKey, UID: "t", Cause: atoll.CauseDeleted}
	other := tombstone
	other.UID = "t0"
	gone := newManifest("b1", 2)
	gone.Remove = true
	for name, c := range map[string]struct {
		manifest  atoll.Manifest
		bundle    string
		tombstone *atoll.Tombstone
		want      bool
	}{
		"a Bundle that exists":              {newManifest("b1", 1), "b1", nil, true},
		"a Bundle that is removed":          {gone, "b1", nil, false},
		"an unknown Bundle":                 {newManifest("b1", 1), "b0", nil, false},
		"a template in another Bundle":      {newManifest("b1", 1, confItem("x")), "b0", &tombstone, true},
		"another template of the object":    {newManifest("b1", 1, confItem("x")), "b1", &other, false},
		"a Bundle that lacks the template":  {newManifest("b1", 1), "b1", &tombstone, false},
		"a template of a tombstone as well": {withTombstones(newManifest("b1", 1), tombstone), "b1", &tombstone, false},
	} {
		e := engineOn(t, newMemoryMember(t), shopNamespace, c.manifest)
		if got := e.IsWantedAgain(c.bundle, c.tombstone); got != c.want {
			t.Errorf("%s: wanted again is %t", name, got)
		}
	}
}
