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
			err := p.stampDriftApprover(a)
			if got := c.now.GetAnnotations()[ask]; got != c.stored {
				t.Errorf("stored %.200q, want %.200q", got, c.stored)
			}
			if err == nil {
				err = p.validateHubWrittenKinds(context.Background(), a)
			}
			if (err == nil) != (c.refused == "") || err != nil && (!strings.Contains(err.Error(), c.refused) || len(err.Error()) > 2000) {
				t.Errorf("refused with %.500v, want %q", err, c.refused)
			}
		})
	}
}

// The author of an order comes from the request alone: an order that was not stamped is refused, also where the hub
// becomes ready between both steps of admission. The hub's own edits are not stamped.
func TestTheAuthorOfAnOrder(t *testing.T) {
	const ask = atoll.AnnotationCorrectDrift
	attributes := func(now *unstructured.Unstructured, by string) admission.Attributes {
		return admission.NewAttributesRecord(now, bundleOf(v1alpha1.SourcePropagationPolicy, ask, pendingID+" bob"), schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Bundle"}, "shop", "web",
			schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "bundles"}, "", admission.Update, nil, false, &user.DefaultInfo{Name: by})
	}
	isReady := false
	p := New(Options{Own: func(u user.Info) bool { return u.GetName() == "hub" }, Hub: func() (Hub, bool) { return Hub{Drift: reportedDrift{}}, isReady }})
	forged := func() *unstructured.Unstructured {
		return bundleOf(v1alpha1.SourcePropagationPolicy, ask, reportedID+" root\n"+pendingID+" bob")
	}
	a := attributes(forged(), "alice")
	if err := p.Admit(context.Background(), a, nil); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("a hub that starts admits an order: %v", err)
	}
	isReady = true
	if err := p.validateDriftOrder(a); err == nil || !strings.Contains(err.Error(), `another user than "alice"`) {
		t.Errorf("an order in the name of root: %v", err)
	}
	long := strings.Repeat("x ", 100)
	for _, name := range []string{"root", "alice", long, "a\nb", "\u00e9" + strings.Repeat("\u00e9", 100)} {
		a := attributes(forged(), name)
		err := p.stampDriftApprover(a)
		if err == nil {
			err = p.validateDriftOrder(a)
		}
		if err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
	own := forged()
	if err := p.stampDriftApprover(attributes(own, "hub")); err != nil || own.GetAnnotations()[ask] != forged().GetAnnotations()[ask] {
		t.Errorf("the hub's edit becomes %q, %v", own.GetAnnotations()[ask], err)
	}
}
