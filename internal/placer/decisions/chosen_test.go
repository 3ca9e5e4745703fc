package decisions

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// storedByFormerVersion is an object as v0.1.0 stored it.
const storedByFormerVersion = `
apiVersion: atoll.dev/v1alpha1
kind: PlacementDecision
metadata:
  namespace: shop
  name: edge-decision-1
  uid: 5f0e
  resourceVersion: "17"
  labels: {atoll.dev/placement: edge, atoll.dev/decision: "1"}
  annotations: {atoll.dev/chosen: "1700000000 c4f3#loyw3v28", team: shop}
status:
  decisions: [{clusterName: oslo, clusterUID: uid-oslo}]
`

func parseDecision(t *testing.T, text string) state.Decision {
	t.Helper()
	obj := &v1alpha1.PlacementDecision{}
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	d, _ := state.DecisionOf(obj)
	return d
}

func placedUnder(fingerprint string) schedule.Decision {
	return schedule.Decision{Verdicts: []schedule.Verdict{{Cluster: "oslo", Outcome: schedule.OutcomePlaced, PlacementFingerprint: fingerprint}}}
}

// A hub that was upgraded reads the annotation of v0.1.0. It writes such an object only when the
// choice changes, and then with fields in place of the annotation.
func TestReadsTheChoiceOfAFormerVersion(t *testing.T) {
	former := parseDecision(t, storedByFormerVersion)
	row := rowFromDecision(former, former.Status.Decisions[0])
	if row.Since != 1700000000 || row.PlacementFingerprint != "c4f3#loyw3v28" || row.LastRebalance().IsZero() || row.UID != "uid-oslo" {
		t.Errorf("the annotation is read as %+v", row)
	}

	var unchanged objectChanges
	if unchanged.recordChoiceInDecisions([]state.Decision{former}, placedUnder("c4f3#loyw3v28")); len(unchanged.toWrite) != 0 {
		t.Errorf("an unchanged object is written: %+v", unchanged.toWrite)
	}

	var edited objectChanges
	edited.recordChoiceInDecisions([]state.Decision{former}, placedUnder("99aa"))
	if len(edited.toWrite) != 1 {
		t.Fatalf("%d objects are written, want 1", len(edited.toWrite))
	}
	now := edited.toWrite[0]
	if since := now.Status.ChosenSince; since == nil || since.Unix() != 1700000000 || now.Status.PlacementFingerprint != "99aa" {
		t.Errorf("the fields are %+v", now.Status)
	}
	if _, former := now.Meta.Annotations[formerAnnotationChosen]; former || now.Meta.Annotations["team"] != "shop" {
		t.Errorf("the annotations are %v", now.Meta.Annotations)
	}
	if former.Meta.Annotations[formerAnnotationChosen] == "" {
		t.Error("the object in the table was changed")
	}

	moved := objectChanges{toWrite: []state.Decision{former}}
	moved.recordChoiceInDecisions([]state.Decision{former}, placedUnder("99aa"))
	if since := moved.toWrite[0].Status.ChosenSince; len(moved.toWrite) != 1 || since == nil || time.Since(since.Time) > time.Minute {
		t.Errorf("a changed list is chosen since %v", since)
	}
	if row = rowFromDecision(moved.toWrite[0], former.Status.Decisions[0]); row.Since != moved.toWrite[0].Status.ChosenSince.Unix() || row.PlacementFingerprint != "99aa" {
		t.Errorf("the fields are read as %+v", row)
	}

	// Without either, the choice is as old as can be.
	if since, fingerprint := choiceOf(state.Decision{}); !since.Equal(&metav1.Time{}) || fingerprint != "" {
		t.Errorf("an object without a record: %v, %q", since, fingerprint)
	}
}
