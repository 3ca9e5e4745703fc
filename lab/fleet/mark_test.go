package fleet

import (
	"encoding/json"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func TestMarks(t *testing.T) {
	const (
		applied = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},
			"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"app","image":"app:1","env":[{"name":"A","value":"b"}]}]}}}}`
		config = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop"},"data":{"key":"one"}}`
	)
	for name, c := range map[string]struct {
		object string
		same   bool
	}{
		"defaults": {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"shop","name":"web","labels":{"x":"y"}},
			"spec":{"revisionHistoryLimit":10,"replicas":2,"template":{"spec":{"restartPolicy":"Always","containers":[
			{"env":[{"name":"A","value":"b"}],"image":"app:1","imagePullPolicy":"Always","name":"app"}]}}}}`, true},
		"another image": {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},
			"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"app","image":"app:2","env":[{"name":"A","value":"b"}]}]}}}}`, false},
		"another environment": {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},
			"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"app","image":"app:1","env":[{"name":"A","value":"c"}]}]}}}}`, false},
		"other replicas": {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},
			"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"app","image":"app:1","env":[{"name":"A","value":"b"}]}]}}}}`, false},
		"another object": {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"shop","namespace":"web"},
			"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"app","image":"app:1","env":[{"name":"A","value":"b"}]}]}}}}`, false},
		"none": {`null`, false},
	} {
		if same := ObjectsChecksum([]byte(c.object)) == ObjectsChecksum([]byte(applied)); same != c.same {
			t.Errorf("%s: the marks are the same: %t", name, same)
		}
	}
	if ObjectsChecksum([]byte(config), []byte(applied)) != ObjectsChecksum([]byte(applied), []byte(config)) {
		t.Error("the order counts")
	}
	if ObjectsChecksum([]byte(config)) == ObjectsChecksum([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop"},"data":{"key":"two"}}`)) {
		t.Error("other data has the same mark")
	}
}

// TestTheMarkIsOfTheReceivedObjects: neither the content hash of a manifest nor the hub's
// hash of an item hides another object.
func TestTheMarkIsOfTheReceivedObjects(t *testing.T) {
	object := func(image string) json.RawMessage {
		return json.RawMessage(`{"kind":"Deployment","spec":{"template":{"spec":{"containers":[{"image":"` + image + `"}]}}}}`)
	}
	manifest := func(content, hash, image string) *atoll.Manifest {
		return &atoll.Manifest{Bundle: "b", Content: content, Items: []atoll.RenderedItem{{Key: atoll.ItemKey{Kind: "Deployment"}, Hash: hash, Object: object(image)}}}
	}
	shapes := newKeptManifestTable()
	hold := func(m *atoll.Manifest) uint32 {
		_, mark := shapes.acquireManifest(m)
		return mark
	}
	one, two := ObjectsChecksum(object("app:1")), ObjectsChecksum(object("app:2"))
	if got := hold(manifest("c1", "h1", "app:1")); got != one {
		t.Errorf("it has the mark %x, want %x", got, one)
	}
	if got := hold(manifest("c1", "h2", "app:2")); got != two {
		t.Errorf("another item under the same content hash has the mark %x, want %x", got, two)
	}
	if got := hold(manifest("c2", "h1", "app:2")); got != two {
		t.Errorf("another object under the same hash has the mark %x, want %x", got, two)
	}
	kept := manifest("c3", "h1", "")
	kept.Items[0].Object = emptyObject
	if got := hold(kept); got != one {
		t.Errorf("an item that the agent has already has the mark %x, want %x", got, one)
	}
}
