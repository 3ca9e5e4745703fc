package session

import (
	"encoding/json"
	"fmt"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// orderFrame returns an order with objects that the agent lacks.
func orderFrame(t *testing.T, bundle string, generation int64, hashes ...string) *pb.FromHub {
	t.Helper()
	m := atoll.Manifest{Bundle: bundle, Content: fmt.Sprint("c", generation)}
	for i, hash := range hashes {
		m.Items = append(m.Items, atoll.RenderedItem{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint(i)}, Hash: hash})
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: bundle, Generation: generation, Manifest: text}}}
}

func objectsFrame(bundle string, generation int64, hash string, size int) *pb.FromHub {
	return &pb.FromHub{Frame: &pb.FromHub_Objects{Objects: &pb.Objects{Bundle: bundle, Generation: generation, Objects: map[string][]byte{hash: make([]byte, size)}}}}
}

// Orders that wait for objects have one bound. An order over it waits for the next session, and one that never fits
// is named.
func TestIncompleteOrdersAreBounded(t *testing.T) {
	const large = MaxIncompleteBytes / 2
	a := NewAgent(AgentOptions{}, Memory{})
	a.BeginSession()
	for _, bundle := range []string{"a", "b", "c"} {
		a.HandleFrame(orderFrame(t, bundle, 1, "h1", "h2"))
	}
	if out := a.HandleFrame(objectsFrame("a", 1, "h1", large)); out.Postponed || a.CountIncomplete() != 3 {
		t.Fatalf("an order within the bound is dropped: %+v", out)
	}
	if out := a.HandleFrame(objectsFrame("b", 1, "h1", large)); !out.Postponed || a.CountIncomplete() != 2 {
		t.Errorf("%d orders wait beyond the bound", a.CountIncomplete())
	}
	if out := a.HandleFrame(objectsFrame("b", 1, "h2", 1)); out.Postponed || len(out.Store) > 0 {
		t.Errorf("a dropped order is continued: %+v", out)
	}
	if out := a.HandleFrame(objectsFrame("a", 1, "h2", 10)); len(out.Store) != 1 || out.StoreBytes < large || out.StoreBytes > large+3*manifestOverhead {
		t.Errorf("the other order is not complete: %d bytes", out.StoreBytes)
	}
	if out := a.HandleFrame(objectsFrame("c", 1, "h1", 2*large)); len(out.Oversized) != 1 || out.Oversized[0] != (OversizedOrder{"c", 1}) || out.Postponed {
		t.Errorf("an order that never fits is not named: %+v", out)
	}
	if a.CountIncomplete() != 0 || a.incompleteBytes != 0 {
		t.Errorf("%d orders of %d bytes wait", a.CountIncomplete(), a.incompleteBytes)
	}
	for range 3 { // a newer order takes the place of an older one
		a.HandleFrame(orderFrame(t, "d", 2, "h1", "h2"))
		if out := a.HandleFrame(objectsFrame("d", 2, "h1", large)); out.Postponed {
			t.Error("an order counts that is not there any more")
		}
	}
	if a.BeginSession(); a.incompleteBytes != 0 {
		t.Errorf("%d bytes are counted of an earlier session", a.incompleteBytes)
	}
}

// An order that the member did not store is not held. The hub's next comparison finds it.
func TestARefusedManifestIsNotHeld(t *testing.T) {
	a := NewAgent(AgentOptions{}, Memory{Held: []Entry{{Bundle: "held", Generation: 1, Content: "c1"}}})
	a.BeginSession()
	for _, bundle := range []string{"held", "new"} {
		out := a.HandleFrame(orderFrame(t, bundle, 2))
		if len(out.Store) != 1 {
			t.Fatalf("%s: nothing is to be stored", bundle)
		}
		a.ManifestRefused(bundle, 1, "c1") // an earlier one
		if out := a.HandleFrame(orderFrame(t, bundle, 2)); len(out.Store) != 0 {
			t.Errorf("%s: the refusal of another manifest counts", bundle)
		}
		a.ManifestRefused(bundle, 2, "c2")
		if out := a.HandleFrame(orderFrame(t, bundle, 2)); len(out.Store) != 1 {
			t.Errorf("%s: the order is not taken again", bundle)
		}
		a.ManifestRefused(bundle, 2, "c2")
	}
	if e, _ := a.tree.Get("held"); e.Generation != 1 || a.tree.Len() != 1 {
		t.Errorf("the agent holds %+v, and %d bundles in all", e, a.tree.Len())
	}
}

// A removal that is forgotten does not keep the bundle from coming back.
func TestAForgottenRemovalDoesNotCount(t *testing.T) {
	a := NewAgent(AgentOptions{}, Memory{RemovedAt: map[string]int64{"a": 5, "b": 5}})
	a.ForgetRemovals([]string{"a"})
	if out := a.HandleFrame(orderFrame(t, "a", 4)); len(out.Store) != 1 {
		t.Error("the removal still counts")
	}
	if out := a.HandleFrame(orderFrame(t, "b", 4)); len(out.Store) != 0 {
		t.Error("another removal is forgotten, too")
	}
}
