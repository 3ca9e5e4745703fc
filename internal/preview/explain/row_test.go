package explain

import (
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// A user that may not read all items of a Bundle is shown what a row waits for as far as it is about
// items that the user may read.
func TestWaitsNameOnlyWhatAUserMayRead(t *testing.T) {
	secret := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "Secret", Name: "s"}, Health: atoll.Degraded, Reason: "Bad", Message: "hidden"}
	web := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "Deployment", Name: "web"}, Health: atoll.Progressing, Reason: "Updating", Message: "1 of 2"}
	healthy := web
	healthy.Health = atoll.Healthy
	active := atoll.RowSpec{Phase: atoll.RowActive, Generation: 2}
	held := active
	held.Reason = atoll.RowReason{Reason: atoll.ReasonReplacementsNotReady, Plan: "p1"}.String()
	status := func(generation int64, items ...atoll.ItemStatus) *atoll.RowStatus {
		return &atoll.RowStatus{Generation: generation, Items: items}
	}
	const awaited = "Secret/s Bad: hidden"
	in := ExplanationInput{MayRead: func(k atoll.ItemKey) bool { return k.Kind != "Secret" }}
	for name, c := range map[string]struct {
		row  rollout.Row
		want string
	}{
		"an item that may be read":        {rollout.Row{Spec: active, Online: true, Status: status(2, secret, web)}, "Deployment/web Updating: 1 of 2"},
		"an item that may not be read":    {rollout.Row{Spec: active, Online: true, Status: status(2, secret, healthy)}, "items that you may not read"},
		"no report":                       {rollout.Row{Spec: active, Online: true}, awaited},
		"a report of an older generation": {rollout.Row{Spec: active, Online: true, Status: status(1, web)}, awaited},
		"a disconnected cluster":          {rollout.Row{Spec: active, Status: status(2, web)}, awaited},
		"a plan":                          {rollout.Row{Spec: held, Online: true, Status: status(2, web)}, "a confirmation of plan p1"},
		"a row that is removed":           {rollout.Row{Spec: atoll.RowSpec{Phase: atoll.RowRemoving, Generation: 2}, Online: true, Status: status(2, web)}, awaited},
	} {
		if got := in.visibleWait(c.row, rollout.RowWait{For: awaited}); got != c.want {
			t.Errorf("%s: waits for %q, want %q", name, got, c.want)
		}
	}
}

// The blocker of a removal is shown as far as the user may read it.
func TestBlockersNameOnlyWhatAUserMayRead(t *testing.T) {
	secret := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "Secret", Name: "s"}, Error: true, Message: "hidden"}
	claim := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "PersistentVolumeClaim", Name: "data"}, Reason: atoll.ReasonTerminating, Message: "a pod uses it"}
	in := ExplanationInput{MayRead: func(k atoll.ItemKey) bool { return k.Kind != "Secret" }}
	for want, items := range map[string][]atoll.ItemStatus{
		"the removal, which is blocked: PersistentVolumeClaim data: a pod uses it": {secret, claim},
		"the removal, which items block that you may not read":                     {secret},
	} {
		row := rollout.Row{Spec: atoll.RowSpec{Phase: atoll.RowRemoving, Generation: 2}, Online: true, Status: &atoll.RowStatus{Generation: 2, State: atoll.RowFailed, Items: items}}
		if got := in.visibleWait(row, rollout.WaitOfRemovingRow(row)); got != want {
			t.Errorf("waits for %q, want %q", got, want)
		}
	}
}

// Drift is said of a healthy object.
func TestTheDriftOfAnObject(t *testing.T) {
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	in := ExplanationInput{Object: key}
	st := &atoll.RowStatus{Items: []atoll.ItemStatus{{Key: key, Health: atoll.Healthy, Reason: atoll.ReasonDrifted, Message: "1 field differs: /spec/replicas"}}}
	if h, reason, problem := in.reportedHealth(st); h != atoll.Healthy || reason != atoll.ReasonDrifted || problem != "Drifted: 1 field differs: /spec/replicas" {
		t.Errorf("%s, %s, %q", h, reason, problem)
	}
	r := RowExplanation{State: atoll.RowReady, Health: atoll.Healthy, ProblemReason: atoll.ReasonDrifted, Problem: "Drifted: 1 field differs: /spec/replicas"}
	if text := r.stateText(); text != "Ready" {
		t.Errorf("the state is %q", text)
	}
}

// The reason of a row names the removals that wait to users that may read the whole Bundle.
func TestTheReasonOfARowNamesOnlyWhatAUserMayRead(t *testing.T) {
	for _, reason := range []atoll.Reason{atoll.ReasonRemovalHeld, atoll.ReasonRemovedBeforeRestore, atoll.ReasonWaitsForConfirmation} {
		full := atoll.RowReason{Reason: reason, Plan: "p1", Text: "remove ConfigMap precious"}
		row := rollout.Row{Spec: atoll.RowSpec{Phase: atoll.RowActive, Reason: full.String()}}
		hidden := atoll.RowReason{Reason: reason, Plan: "p1"}
		for all, want := range map[bool]string{true: full.String(), false: hidden.String()} {
			if got := (ExplanationInput{}).explainRow(Bundle{}, "a", row, all).Reason; got != want {
				t.Errorf("all %v: %q, want %q", all, got, want)
			}
		}
	}
}

// An approval is shown with its user and its age until the cluster answers it.
func TestTheApprovalOfACorrection(t *testing.T) {
	const id = "0123456789abcdef"
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	in := ExplanationInput{Object: key}
	row := rollout.Row{Spec: atoll.RowSpec{Generation: 2, Approvals: []atoll.DriftApproval{{Item: "/ConfigMap/shop/a", ID: id}, {Item: key.String(), ID: id, By: "alice\n", At: 1_790_000_000}}}}
	e := Explanation{now: time.Unix(1_790_000_000, 0).Add(3 * time.Minute)}
	got := e.approvalNotes(&RowExplanation{Approval: in.approvalOf(Bundle{}, row)})
	if want := []string{`alice\x0a approved 3m ago that the cluster corrects what it reported`}; !slices.Equal(got, want) {
		t.Errorf("the notes are %q, want %q", got, want)
	}
	row.Spec.Approvals[1].At = 0
	if got, want := e.approvalNotes(&RowExplanation{Approval: in.approvalOf(Bundle{}, row)}), `alice\x0a approved that the cluster corrects what it reported`; len(got) != 1 || got[0] != want {
		t.Errorf("without a time the notes are %q", got)
	}
	row.Status = &atoll.RowStatus{Generation: 2, Applied: true}
	if got := e.approvalNotes(&RowExplanation{Approval: in.approvalOf(Bundle{}, row)}); got != nil {
		t.Errorf("after the answer: %q", got)
	}
	in.Object.Name = "other"
	if row.Status = nil; in.approvalOf(Bundle{}, row) != nil {
		t.Error("another object has the approval")
	}
}
