package remove

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
)

// scripted hub, whose Cluster becomes another whenever it is asked for, to the last, and that
// takes down what is written to it.
type scripted struct {
	hub
	t       *testing.T
	mu      sync.Mutex
	asked   []*v1alpha1.Cluster
	written []string
	onWrite func()
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/clusters/tokyo") {
		s.hub.ServeHTTP(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPatch {
		var patch struct{ Spec json.RawMessage }
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &patch); err != nil {
			s.t.Error(err)
		}
		s.written = append(s.written, string(patch.Spec))
		if s.onWrite != nil {
			s.onWrite()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(newObject(s.t, "tokyo", s.asked[0])) // the client has gone
	if r.Method == http.MethodGet && len(s.asked) > 1 {
		s.asked = s.asked[1:]
	}
}

// connectedCluster is the Cluster, as it is before.
func connectedCluster() *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{}
	c.UID, c.Generation = tokyo, 1
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue, Reason: "AgentConnected"})
	return c
}

// heldCluster is the Cluster whose removal is stated, at a generation, and of which the hub has said at
// another one that it would remove what that plan says.
func heldCluster(generation, observed int64, plan string) *v1alpha1.Cluster {
	c := connectedCluster()
	c.Generation, c.Spec.Removal = generation, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}
	c.Status.Removal = &v1alpha1.ClusterRemovalStatus{Plan: plan}
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterRemoving, Status: metav1.ConditionTrue, Reason: "WaitsForConfirmation", ObservedGeneration: observed})
	return c
}

const stated = `{"removal":{"confirm":null,"force":null,"mode":"Clean"}}`

// The plan that --yes confirms is the hub's plan of this removal, where the same objects are
// listed after that; nothing is stated without it.
func TestNothingIsConfirmedThatWasNotListed(t *testing.T) {
	in := placed{"web", "tokyo", atoll.RowSpec{UID: tokyo, Generation: 1, Revision: "r1", Phase: atoll.RowActive}, nil}
	more := placed{"api", "tokyo", atoll.RowSpec{UID: tokyo, Generation: 1, Revision: "r2", Phase: atoll.RowActive}, nil}
	anew := heldCluster(2, 2, "fedcba9876543210")
	anew.UID = oslo
	unknown := heldCluster(2, 2, "")
	meta.FindStatusCondition(unknown.Status.Conditions, v1alpha1.ClusterRemoving).Reason = "PlanUnknown"
	for name, c := range map[string]struct {
		asked   []*v1alpha1.Cluster
		comes   bool // something else, once the removal is stated
		args    string
		written string
		says    string
	}{
		"what was listed":          {[]*v1alpha1.Cluster{connectedCluster(), heldCluster(2, 2, "0123456789abcdef")}, false, "--clean --yes", stated + `{"removal":{"confirm":"0123456789abcdef","force":null,"mode":"Clean"}}`, ""},
		"once it was looked at":    {[]*v1alpha1.Cluster{connectedCluster(), heldCluster(2, 1, "fedcba9876543210"), heldCluster(2, 2, "0123456789abcdef")}, false, "--clean --yes", stated + `{"removal":{"confirm":"0123456789abcdef","force":null,"mode":"Clean"}}`, ""},
		"once the plan is known":   {[]*v1alpha1.Cluster{connectedCluster(), unknown, heldCluster(2, 2, "0123456789abcdef")}, false, "--clean --yes", stated + `{"removal":{"confirm":"0123456789abcdef","force":null,"mode":"Clean"}}`, ""},
		"something else came":      {[]*v1alpha1.Cluster{connectedCluster(), heldCluster(2, 2, "0123456789abcdef")}, true, "--clean --yes", stated, "something else than what is listed"},
		"another Cluster":          {[]*v1alpha1.Cluster{connectedCluster(), anew}, false, "--clean --yes", stated, ""},
		"without --yes":            {[]*v1alpha1.Cluster{connectedCluster()}, false, "--clean", "", "nothing is done yet"},
		"without a mode":           {[]*v1alpha1.Cluster{connectedCluster()}, false, "", "", "--orphan leaves it, --clean removes it"},
		"only what is there":       {[]*v1alpha1.Cluster{connectedCluster()}, false, "--dry-run", "", ""},
		"it is under way":          {[]*v1alpha1.Cluster{heldCluster(2, 2, "0123456789abcdef")}, false, "--clean", "", ""},
		"it is under way, as such": {[]*v1alpha1.Cluster{heldCluster(2, 2, "0123456789abcdef")}, false, "", "", ""},
		"it is under way, else":    {[]*v1alpha1.Cluster{heldCluster(2, 2, "0123456789abcdef")}, false, "--orphan", `{"removal":{"confirm":null,"force":null,"mode":"Orphan"}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{t: t, hub: hubWith(t, []placed{in}, "r1"), asked: c.asked}
			if c.comes {
				s.onWrite = func() {
					for what, of := range hubWith(t, []placed{in, more}, "r1", "r2") {
						s.hub[what] = of
					}
				}
			}
			err := clienttest.Run(t.Context(), t, s, NewCommand, clienttest.Said{Out: clienttest.NewWriteLimitedBuffer(), Notes: clienttest.NewWriteLimitedBuffer()}, append([]string{"tokyo", "--no-wait"}, strings.Fields(c.args)...)...)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v", err)
			}
			if got := strings.Join(s.written, ""); got != c.written {
				t.Errorf("written was %s, want %s", got, c.written)
			}
		})
	}
}
