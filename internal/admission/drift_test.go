package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

const (
	reportedID = "0123456789abcdef"
	pendingID  = "fedcba9876543210"
	staleID    = "00000000000000aa"
)

// reportedDrift is a hub whose clusters report reportedID and pendingID.
type reportedDrift struct{}

func (reportedDrift) CheckDriftOrder(_ string, order atoll.DriftOrder) error {
	for _, id := range order.IDs {
		if id == reportedID {
			return nil
		}
	}
	return errors.New("no cluster reports this drift now")
}

func (reportedDrift) PendingDriftOrders(_ string, orders []atoll.DriftOrder) (out []atoll.DriftOrder) {
	for _, o := range orders {
		if o.IDs[0] == pendingID {
			out = append(out, o)
		}
	}
	return out
}

// An order names reported drift. The hub adds the name of the user, whatever the user writes, and keeps earlier
// orders that it has not taken.
func TestOrdersToCorrectDrift(t *testing.T) {
	const ask = atoll.AnnotationCorrectDrift
	of := func(annotations ...string) *unstructured.Unstructured {
		return bundleOf(v1alpha1.SourcePropagationPolicy, annotations...)
	}
	for name, c := range map[string]struct {
		before, now *unstructured.Unstructured
		stored      string
		refused     string
		starting    bool
	}{
		"an order":                    {of(), of(ask, reportedID), reportedID + " alice", "", false},
		"in the name of another user": {of(), of(ask, reportedID+" root"), reportedID + " alice", "", false},
		"after an earlier order":      {of(ask, pendingID+" bob"), of(ask, reportedID), reportedID + " alice\n" + pendingID + " bob", "", false},
		"after one that is taken":     {of(ask, staleID+" bob"), of(ask, reportedID), reportedID + " alice", "", false},
		"an order of another user":    {of(), of(ask, reportedID+"\n"+pendingID+" root"), reportedID + " alice", "", false},
		"it is taken back":            {of(ask, reportedID+" bob"), of(), "", "", false},
		"drift that changed":          {of(), of(ask, staleID), staleID + " alice", "no cluster reports", false},
		"no ID":                       {of(), of(ask, "all"), "all", "no ID of drift", false},
		"a huge value":                {of(), of(ask, strings.Repeat(reportedID+",", 1<<16)), strings.Repeat(reportedID+",", 1<<16), "at most 1000", false},
		"with another edit":           {of(), of(ask, reportedID, "team", "a"), reportedID + " alice", "one at a time", false},
		"a hub that starts":           {of(), of(ask, reportedID), reportedID, "try again", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Options{Own: func(user.Info) bool { return false }, Hub: func() (Hub, bool) { return Hub{Drift: reportedDrift{}}, !c.starting }})
			a := admission.NewAttributesRecord(c.now, c.before, schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Bundle"}, "shop", "web",
				schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "bundles"}, "", admission.Update, nil, false, &user.DefaultInfo{Name: "alice"})
			p.stampDriftApprover(a)
			if got := c.now.GetAnnotations()[ask]; got != c.stored {
				t.Errorf("stored %.200q, want %.200q", got, c.stored)
			}
			err := p.validateHubWrittenKinds(context.Background(), a)
			if (err == nil) != (c.refused == "") || err != nil && (!strings.Contains(err.Error(), c.refused) || len(err.Error()) > 2000) {
				t.Errorf("refused with %.500v, want %q", err, c.refused)
			}
		})
	}
}
