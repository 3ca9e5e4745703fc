package logs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
)

// newRunningPod pod of a cluster.
func newRunningPod(name, cluster, run string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "." + cluster, UID: types.UID(name + cluster), Labels: map[string]string{"app": "web", atoll.LabelCluster: cluster}},
		Spec:       corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "main"}, {Name: "side"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", ContainerID: run, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}},
	}
}

func TestContainersAreChosen(t *testing.T) {
	two := []corev1.Pod{*newRunningPod("a", "oslo", "1"), *newRunningPod("b", "tokyo", "1")}
	two[1].Annotations = map[string]string{"kubectl.kubernetes.io/default-container": "side"}
	for _, c := range []struct {
		o    logsOptions
		want string
	}{
		{logsOptions{}, "[oslo/a main] [tokyo/b side]"},
		{logsOptions{container: "side"}, "[oslo/a side] [tokyo/b side]"},
		{logsOptions{all: true}, "[oslo/a init] [oslo/a main] [oslo/a side] [tokyo/b init] [tokyo/b main] [tokyo/b side]"},
		{logsOptions{container: "none"}, `pod b.tokyo has no container "none"; it has: init, main, side`},
	} {
		sources, err := c.o.selectSources(two)
		var got []string
		for _, s := range sources {
			got = append(got, s.linePrefix())
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("chosen are %s, wanted %s", text, c.want)
		}
	}
}

func TestWhatBecameOfAContainer(t *testing.T) {
	s := logSource{newRunningPod("a", "oslo", "1"), "main"}
	ended := newRunningPod("a", "oslo", "1")
	ended.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	other := newRunningPod("a", "oslo", "1")
	other.UID = "other"
	pods := schema.GroupResource{Resource: "pods"}
	away := apierrors.NewServiceUnavailable("away")
	for name, c := range map[string]struct {
		pod         *corev1.Pod
		err, failed error
		want        int
	}{
		"it runs":               {pod: s.pod, want: goesOn},
		"it ended":              {pod: ended, want: over},
		"it runs again":         {pod: newRunningPod("a", "oslo", "2"), want: over},
		"its pod is gone":       {err: apierrors.NewNotFound(pods, "a"), want: over},
		"its pod is another":    {pod: other, want: over},
		"its cluster is away":   {err: away, want: away1},
		"the hub is away":       {err: errors.New("refused"), want: away1},
		"its log is away":       {pod: s.pod, failed: away, want: away1},
		"its log is refused":    {pod: s.pod, failed: apierrors.NewForbidden(pods, "a", nil), want: refused},
		"its pod is not shown":  {err: apierrors.NewForbidden(pods, "a", nil), want: refused},
		"it ended, log refused": {pod: ended, failed: apierrors.NewBadRequest("no"), want: refused},
	} {
		if got := decideAfterStreamEnd(s, c.pod, c.err, c.failed); got.what != c.want {
			t.Errorf("%s: the verdict is %d, wanted %d", name, got.what, c.want)
		}
	}
}

// away1 is the verdict, beside an error of the name.
const away1 = away

// hub answers as the API does for pods and their logs.
type hub struct {
	t    *testing.T
	mu   sync.Mutex
	pods []*corev1.Pod
	// said by pod; nil: the cluster is away.
	said map[string][]string
	// asked for logs, with their queries.
	asked []string
	// events of pods for a watch.
	news chan *corev1.Pod
}

func newHub(t *testing.T, pods ...*corev1.Pod) *hub {
	return &hub{t: t, pods: pods, said: map[string][]string{}, news: make(chan *corev1.Pod, 10)}
}

var discovery = metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{
	Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"get", "list"},
}}}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if clienttest.ServeDiscovery(w, r, discovery) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/shop/pods")
	name, log := strings.CutSuffix(strings.Trim(rest, "/"), "/log")
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !ok:
		http.NotFound(w, r)
	case log:
		h.asked = append(h.asked, name+"?"+r.URL.RawQuery)
		lines := h.said[name]
		if len(lines) == 0 {
			h.writeStatus(w, apierrors.NewServiceUnavailable("cluster of "+name+" cannot be reached").ErrStatus)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, lines[0])
		h.said[name] = lines[1:]
	case r.URL.Query().Get("watch") != "":
		h.mu.Unlock()
		defer h.mu.Lock()
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case pod := <-h.news:
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", encodeJSON(h.t, pod))
				w.(http.Flusher).Flush()
			}
		}
	case name != "":
		for _, p := range h.pods {
			if p.Name == name {
				fmt.Fprint(w, encodeJSON(h.t, p))
				return
			}
		}
		h.writeStatus(w, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name).ErrStatus)
	default:
		var all []string
		for _, p := range h.pods {
			if field := r.URL.Query().Get("fieldSelector"); field == "" || field == "metadata.name="+p.Name {
				all = append(all, encodeJSON(h.t, p))
			}
		}
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[%s]}`, strings.Join(all, ","))
	}
}

func (h *hub) writeStatus(w http.ResponseWriter, s metav1.Status) {
	s.APIVersion, s.Kind = "v1", "Status"
	w.WriteHeader(int(s.Code))
	fmt.Fprint(w, encodeJSON(h.t, s))
}

func encodeJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// run the command against the hub.
func (h *hub) run(ctx context.Context, out, notes *clienttest.OutputBuffer, args ...string) error {
	h.t.Helper()
	return clienttest.Run(ctx, h.t, h, NewCommand, clienttest.Said{Out: out, Notes: notes}, args...)
}

func TestLogsOfAllClusters(t *testing.T) {
	h := newHub(t, newRunningPod("b", "tokyo", "1"), newRunningPod("a", "oslo", "1"), newRunningPod("c", "rome", "1"))
	h.said["a.oslo"] = []string{"2026-05-01T12:00:01Z one\n2026-05-01T12:00:03Z three\n"}
	h.said["b.tokyo"] = []string{"2026-05-01T12:00:02Z two\n"}
	out, notes := clienttest.NewWriteLimitedBuffer(), clienttest.NewWriteLimitedBuffer()
	if err := h.run(t.Context(), out, notes, "-l", "app=web", "--color", "always"); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[36m[oslo/a main]\x1b[0m one\n\x1b[33m[tokyo/b main]\x1b[0m two\n\x1b[36m[oslo/a main]\x1b[0m three\n"
	if out.String() != want {
		t.Errorf("it prints\n%q, wanted\n%q", out.String(), want)
	}
	if !strings.Contains(notes.String(), "[rome/c main] cannot be read: cluster of c.rome cannot be reached") {
		t.Errorf("of what cannot be read it says %q", notes.String())
	}
	if !strings.Contains(strings.Join(h.asked, " "), "tailLines=10") {
		t.Errorf("of what was selected all is asked for: %q", h.asked)
	}
}

func TestLogsThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing could be read":    {[]string{"-l", "app=web"}, "nothing could be read of 2 containers"},
		"too much at once":         {[]string{"-l", "app=web", "--max-log-requests", "1"}, "2 containers in 2 clusters, and at most 1 are read at once; narrow it with --clusters"},
		"no such pod":              {[]string{"web"}, "pods of placed workloads are named NAME.CLUSTER"},
		"no such container":        {[]string{"-l", "app=web", "-c", "none"}, `has no container "none"`},
		"nothing was asked for":    {nil, "name a workload"},
		"two things are asked for": {[]string{"web", "-l", "a=b"}, "not both"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, newRunningPod("a", "oslo", "1"), newRunningPod("b", "tokyo", "1"))
			out, notes := clienttest.NewWriteLimitedBuffer(), clienttest.NewWriteLimitedBuffer()
			if err := h.run(t.Context(), out, notes, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, wanted %q", err, c.want)
			}
		})
	}
}

// TestFollowing: a stream that breaks off goes on where it was, pods that come are followed,
// and it ends cleanly.
func TestFollowing(t *testing.T) {
	h := newHub(t, newRunningPod("a", "oslo", "1"))
	h.said["a.oslo"] = []string{"2026-05-01T12:00:01Z one\n", "2026-05-01T12:00:01Z one\n2026-05-01T12:00:02Z two\n"}
	h.said["b.tokyo"] = []string{"2026-05-01T12:00:09Z late\n"}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, notes := clienttest.NewWriteLimitedBuffer(), clienttest.NewWriteLimitedBuffer()
	ended := make(chan error, 1)
	go func() { ended <- h.run(ctx, out, notes, "-l", "app=web", "-f") }()
	h.news <- newRunningPod("b", "tokyo", "1")
	for _, want := range []string{"[oslo/a main] one\n", "[oslo/a main] two\n", "[tokyo/b main] late\n"} {
		out.WaitFor(t, want)
	}
	notes.WaitFor(t, "cluster oslo: its logs broke off")
	h.mu.Lock()
	h.said["a.oslo"] = []string{"2026-05-01T12:00:05Z again\n"}
	h.mu.Unlock()
	out.WaitFor(t, "again")
	notes.WaitFor(t, "cluster oslo is back")
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	if n := strings.Count(out.String(), "one\n"); n != 1 {
		t.Errorf("what was seen is printed %d times", n)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := strings.Join(h.asked, " "); !strings.Contains(all, "sinceTime=2026-05-01T12%3A00%3A01Z") {
		t.Errorf("it is not asked for from where it broke off: %q", h.asked)
	}
}
