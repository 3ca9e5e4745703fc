package get

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/rowcodec"
)

// rowTexts of clusters that are ready at a revision, but for the first.
func rowTexts(t *testing.T, clusters []string, revision string) (spec, status string) {
	t.Helper()
	var specs, statuses []rowcodec.Line
	for i, c := range clusters {
		uid := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
		s := atoll.RowStatus{UID: uid, Generation: 1, Applied: true, State: atoll.RowReady, Total: 1, Ready: 1}
		if i == 0 {
			s.Applied, s.State, s.Ready = false, atoll.RowProgressing, 0
		}
		specs = append(specs, rowcodec.Line{Cluster: c, Text: rowcodec.EncodeSpec(atoll.RowSpec{UID: uid, Generation: 1, Revision: revision, Phase: atoll.RowActive}, nil)})
		statuses = append(statuses, rowcodec.Line{Cluster: c, Text: rowcodec.EncodeStatus(s, nil)})
	}
	return rowcodec.JoinLines(specs), rowcodec.JoinLines(statuses)
}

func deploymentKey(name string) atoll.ItemKey {
	return atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}
}

// addHundredClusters Deployments, in Bundles as they are made.
func addHundredClusters(h *hub, bundle func(names []string)) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("web-%d", i))
		h.rows = append(h.rows, names[i]+" 1/1")
	}
	bundle(names)
	for _, name := range []string{"oslo", "rome", "york"} {
		c := &v1alpha1.Cluster{}
		c.Name = name
		if name != "york" {
			c.Status.Conditions = []metav1.Condition{newCondition(v1alpha1.ClusterReady, metav1.ConditionTrue, "AgentConnected", "")}
		}
		h.add("clusters", c)
	}
}

// TestWhereAHundredTemplatesRunTakesFewRequests: what a Bundle says of its only object is
// read of no revision, and nothing of other namespaces.
func TestWhereAHundredTemplatesRunTakesFewRequests(t *testing.T) {
	in := []string{"oslo", "rome", "york"}
	for name, c := range map[string]struct {
		bundle func(*hub, []string)
		most   int
	}{
		"of one policy": {func(h *hub, names []string) {
			var keys []atoll.ItemKey
			for _, name := range names {
				keys = append(keys, deploymentKey(name))
			}
			h.addBundle("web", v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "web"}, in, keys...)
		}, 7},
		"each annotated": {func(h *hub, names []string) {
			for _, name := range names {
				h.addBundle(name, v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: name, UID: "uid-" + name}, in, deploymentKey(name))
			}
		}, 6},
		"of one policy, each by itself": {func(h *hub, names []string) {
			for _, name := range names {
				h.addBundle(name, v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "web"}, in, deploymentKey(name))
				h.objects["bundles"][len(h.objects["bundles"])-1].(*v1alpha1.Bundle).Spec.Group = "Deployment.apps/" + name
			}
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t)
			addHundredClusters(h, func(names []string) { c.bundle(h, names) })
			out, notes := clienttest.NewWriteLimitedBuffer(), clienttest.NewWriteLimitedBuffer()
			if err := h.run(t.Context(), out, notes, "deployments", "-o", "wide"); err != nil {
				t.Fatal(err)
			}
			sum := 0
			for _, n := range h.asked {
				sum += n
			}
			if sum > c.most {
				t.Errorf("it takes %d requests: %v", sum, h.asked)
			}
			if n := strings.Count(out.String(), "2/3        Progressing, 1 away   oslo(Progressing),rome,york(away)\n"); n != 100 || notes.String() != "" {
				t.Errorf("%d of 100 are printed right, in\n%.400s\n%s", n, out, notes)
			}
		})
	}
}

// TestAWatchGoesOnPastItsEnds: past an expired history of the hub, its restart, and its absence.
// Nothing is printed twice, nothing of it is an error, and revisions are not read again.
func TestAWatchGoesOnPastItsEnds(t *testing.T) {
	h := newHub(t)
	h.rows = []string{"a 1/1", "b 1/1"}
	h.addBundle("web", v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "web"}, []string{"oslo"}, deploymentKey("a"), deploymentKey("b"))
	expired := apierrors.NewResourceExpired("of an earlier start of this hub").ErrStatus
	expired.Kind, expired.APIVersion = "Status", "v1"
	end := func(events ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { fmt.Fprint(w, strings.Join(events, "")) }
	}
	h.watches = []func(http.ResponseWriter){
		end(h.eventText("MODIFIED", h.newTable("11", "a 0/1"))),                                // and it ends
		func(w http.ResponseWriter) { http.Error(w, "no hub", http.StatusServiceUnavailable) }, // it starts again
		end(h.eventText("BOOKMARK", h.newTable("12"))),
		func(w http.ResponseWriter) { // it does not know the changes since
			h.version, h.rows = "20", []string{"a 0/1", "b 0/1", "c 1/1"}
			h.write(w, map[string]any{"type": "ERROR", "object": expired})
		},
		func(w http.ResponseWriter) {
			h.version, h.rows = "30", []string{"a 1/1", "b 0/1", "c 1/1"}
			w.WriteHeader(http.StatusGone)
			h.write(w, expired)
		},
		end(h.eventText("ADDED", h.newTable("31", "d 1/1"))),
	}
	lines, noted := h.watchUntil("d ")
	var got []string
	for _, f := range lines {
		got = append(got, f[0]+" "+f[1])
	}
	if want := "NAME READY,a 1/1,b 1/1,a 0/1,b 0/1,c 1/1,a 1/1,d 1/1"; strings.Join(got, ",") != want {
		t.Errorf("it prints %v, wanted %s", got, want)
	}
	if strings.Count(noted, "\n") != 1 || !strings.Contains(noted, "the watch of deployments is requested again") {
		t.Errorf("it notes %q", noted)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked["revisions"] != 1 || h.asked["watch from 12"] != 1 || h.asked["watch from 20"] != 1 {
		t.Errorf("asked are %v", h.asked)
	}
}

// TestAWatchForgetsWhatIsGone: a returning object looks as it did, and is printed again, whether
// its deletion was seen or missed.
func TestAWatchForgetsWhatIsGone(t *testing.T) {
	h := newHub(t)
	h.rows = []string{"a 1/1", "b 1/1"}
	expired := apierrors.NewResourceExpired("of an earlier start of this hub").ErrStatus
	expired.Kind, expired.APIVersion = "Status", "v1"
	again := func(version string, rows ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			h.version, h.rows = version, rows
			h.write(w, map[string]any{"type": "ERROR", "object": expired})
		}
	}
	h.watches = []func(http.ResponseWriter){
		func(w http.ResponseWriter) { fmt.Fprint(w, h.eventText("DELETED", h.newTable("11", "a 1/1"))) },
		again("20", "a 1/1", "b 1/1"),
		again("30", "b 1/1"),
		again("40", "a 1/1", "b 1/1"),
		func(w http.ResponseWriter) { fmt.Fprint(w, h.eventText("ADDED", h.newTable("41", "d 1/1"))) },
	}
	lines, _ := h.watchUntil("d ")
	var got []string
	for _, f := range lines {
		got = append(got, f[0])
	}
	if want := "NAME,a,b,a,a,a,d"; strings.Join(got, ",") != want {
		t.Errorf("it prints %v, wanted %s", got, want)
	}
}

// TestAWatchThatIsRefusedEnds: asking again would not help.
func TestAWatchThatIsRefusedEnds(t *testing.T) {
	h := newHub(t)
	h.rows = []string{"a 1/1"}
	h.watches = []func(http.ResponseWriter){func(w http.ResponseWriter) { http.Error(w, "no", http.StatusForbidden) }}
	if err := h.run(t.Context(), clienttest.NewWriteLimitedBuffer(), clienttest.NewWriteLimitedBuffer(), "deployments", "-w"); !apierrors.IsForbidden(err) {
		t.Errorf("it ends with %v", err)
	}
}

// TestAWatchThatCannotBePrintedEnds: the hub is not asked again for output without a reader.
func TestAWatchThatCannotBePrintedEnds(t *testing.T) {
	h := newHub(t)
	h.rows = []string{"a 1/1"}
	h.watches = []func(http.ResponseWriter){func(w http.ResponseWriter) { fmt.Fprint(w, h.eventText("MODIFIED", h.newTable("11", "a 0/1"))) }}
	out := clienttest.NewWriteLimitedBuffer(1)
	if err := h.run(t.Context(), out, clienttest.NewWriteLimitedBuffer(), "deployments", "-w"); !errors.Is(err, clienttest.ErrFull) {
		t.Errorf("it ends with %v", err)
	}
}
