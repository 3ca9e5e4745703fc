package apiserver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
	"atoll.dev/atoll/internal/testwait"
)

func newPod(namespace, name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSDefault, Containers: []corev1.Container{{Name: "c", Image: "i", TerminationMessagePolicy: "File", ImagePullPolicy: "Always"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// newTemplate is a Pod that a user writes on the hub, without an owner.
func newTemplate(namespace, name string) *corev1.Pod {
	p := newPod(namespace, name, nil)
	p.OwnerReferences = nil
	return p
}

func podNames(list *corev1.PodList) (out []string) {
	for _, p := range list.Items {
		out = append(out, p.Name)
	}
	return out
}

// withWarnings returns a user's clients, and what they were warned of.
func (u *user) withWarnings() (*user, *warnings) {
	w := &warnings{}
	c := rest.CopyConfig(u.config)
	c.WarningHandler = w
	return newUser(u.t, c), w
}

type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

func (w *warnings) takeText() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := strings.Join(w.texts, "\n")
	w.texts = nil
	return texts
}

// TestPeopleSeeWhatRuns: stored objects and those of the members that have rows, in the namespaces
// of the rows, with a warning for each missing member.
func TestPeopleSeeWhatRuns(t *testing.T) {
	u, warned := newAdmin(t, hub).withWarnings()
	ns := u.createNamespace("shown")
	fleet.joinMembers(t, ns, "oslo", "tokyo")
	web := map[string]string{"app": "web"}
	fleet.put("oslo", watch.Added, newPod(ns, "web-1", web))
	fleet.put("tokyo", watch.Added, newPod(ns, "web-2", map[string]string{"app": "db"}))
	fleet.put("tokyo", watch.Added, newPod(ns, "solo", nil))
	fleet.put("tokyo", watch.Added, newPod("elsewhere", "web-3", map[string]string{"lie": "yes"}))
	pods := u.kube.CoreV1().Pods(ns)
	if _, err := pods.Create(t.Context(), newTemplate(ns, "solo"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what    string
		options metav1.ListOptions
		all     bool
		want    []string
	}{
		{what: "a namespace", want: []string{"solo", "web-1.oslo", "web-2.tokyo"}},
		{what: "one page", options: metav1.ListOptions{Limit: 1}, want: []string{"solo", "web-1.oslo", "web-2.tokyo"}},
		{what: "a label", options: metav1.ListOptions{LabelSelector: "app=web"}, want: []string{"web-1.oslo"}},
		{what: "a cluster", options: metav1.ListOptions{LabelSelector: atoll.LabelCluster + "=tokyo"}, want: []string{"web-2.tokyo"}},
		{what: "what is stored", options: metav1.ListOptions{LabelSelector: "!" + atoll.LabelCluster}, want: []string{"solo"}},
		{what: "a name", options: metav1.ListOptions{FieldSelector: "metadata.name=web-2.tokyo"}, want: []string{"web-2.tokyo"}},
		{what: "a stored name", options: metav1.ListOptions{FieldSelector: "metadata.name=solo"}, want: []string{"solo"}},
		{what: "a phase", options: metav1.ListOptions{FieldSelector: "status.phase=Failed"}},
		{what: "all namespaces", all: true, options: metav1.ListOptions{LabelSelector: "app"}, want: []string{"web-1.oslo", "web-2.tokyo"}},
	} {
		from := pods
		if c.all {
			from = u.kube.CoreV1().Pods("")
		}
		list, err := from.List(t.Context(), c.options)
		if err != nil || !slices.Equal(podNames(list), c.want) {
			t.Errorf("%s: %v, %v; wanted %v", c.what, podNames(list), err, c.want)
		}
	}
	if text := warned.takeText(); text != "" {
		t.Errorf("warned of %s", text)
	}
	got, err := pods.Get(t.Context(), "web-1.oslo", metav1.GetOptions{})
	if err != nil || got.Labels[atoll.LabelCluster] != "oslo" || got.OwnerReferences[0].APIVersion != fleetview.OwnerGroupVersion || got.OwnerReferences[0].Name != "web.oslo" {
		t.Errorf("got %+v, %v", got, err)
	}
	solo, err := pods.Get(t.Context(), "solo", metav1.GetOptions{})
	listed, lerr := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "!app"})
	if err != nil || lerr != nil || solo.Status.Phase != corev1.PodRunning || len(listed.Items) != 1 || listed.Items[0].Status.Phase != corev1.PodRunning {
		t.Errorf("a template is %v, %v, and in a list %v, %v", solo.Status, err, listed, lerr)
	}
	if own, err := newUser(t, hub.LoopbackConfig()).kube.CoreV1().Pods(ns).Get(t.Context(), "solo", metav1.GetOptions{}); err != nil || own.Status.Phase != corev1.PodPending {
		t.Errorf("to the hub itself it is %v, %v", own.Status, err)
	}
	for _, name := range []string{"web-3", "web-1.tokyo", "web-9.oslo", "web-3.tokyo", "web-1.mars"} {
		if _, err := pods.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	table, err := u.kube.CoreV1().RESTClient().Get().Namespace(ns).Resource("pods").SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(table), `"name":"Cluster"`) || !strings.Contains(string(table), `"web-1.oslo","0/1","Running","0","\u003cunknown\u003e","oslo"`) {
		t.Errorf("as a table: %s, %v", table, err)
	}
	fleet.removeMember("tokyo")
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.Equal(podNames(list), []string{"solo", "web-1.oslo"}) {
		t.Errorf("with a member away: %v, %v", podNames(list), err)
	}
	if text := warned.takeText(); !strings.Contains(text, "pods are missing here: cluster tokyo cannot be reached") {
		t.Errorf("warned of %q", text)
	}
	if _, err := pods.Get(t.Context(), "web-2.tokyo", metav1.GetOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a pod of a member that is away: %v", err)
	}
}

// TestWhoMayReadANamespaceSeesNoOther: what the hub's RBAC says is all that counts, by name
// and in lists.
func TestWhoMayReadANamespaceSeesNoOther(t *testing.T) {
	u := newAdmin(t, hub)
	mine, other := u.createNamespace("mine"), u.createNamespace("other")
	fleet.joinMembers(t, mine, "narrow")
	fleet.mu.Lock()
	fleet.placed[other] = []string{"narrow"}
	fleet.mu.Unlock()
	t.Cleanup(func() { fleet.mu.Lock(); delete(fleet.placed, other); fleet.mu.Unlock() })
	fleet.put("narrow", watch.Added, newPod(mine, "web-1", nil))
	fleet.put("narrow", watch.Added, newPod(other, "web-2", map[string]string{"lie": "yes"}))
	u.mustApply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jane, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`, mine))
	c := rest.CopyConfig(u.config)
	c.Impersonate = rest.ImpersonationConfig{UserName: "jane"}
	jane := newUser(t, c)
	testwait.Until(t, "jane may read hers", func(ctx context.Context) (bool, string) {
		list, err := jane.kube.CoreV1().Pods(mine).List(ctx, metav1.ListOptions{})
		return err == nil && slices.Equal(podNames(list), []string{"web-1.narrow"}), fmt.Sprint(list, err)
	})
	fleet.takeRequests()
	for what, err := range map[string]error{
		"another namespace": secondResult(jane.kube.CoreV1().Pods(other).List(t.Context(), metav1.ListOptions{})),
		"all":               secondResult(jane.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})),
		"one pod":           secondResult(jane.kube.CoreV1().Pods(other).Get(t.Context(), "web-2.narrow", metav1.GetOptions{})),
		"its log":           secondResult(jane.kube.CoreV1().Pods(other).GetLogs("web-2.narrow", &corev1.PodLogOptions{}).DoRaw(t.Context())),
		"a watch":           secondResult(jane.kube.CoreV1().Pods(other).Watch(t.Context(), metav1.ListOptions{})),
		"a delete":          jane.kube.CoreV1().Pods(mine).Delete(t.Context(), "web-1.narrow", metav1.DeleteOptions{}),
		"exec":              jane.kube.CoreV1().RESTClient().Post().Namespace(mine).Resource("pods").Name("web-1.narrow").SubResource("exec").Do(t.Context()).Error(),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if asked := fleet.takeRequests(); len(asked) > 0 {
		t.Errorf("what was refused reached a member: %q", asked)
	}
	if _, err := jane.kube.CoreV1().Pods(mine).Get(t.Context(), "web-2.narrow", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod of another namespace: %v", err)
	}
}

func secondResult[T any](_ T, err error) error { return err }

// expectEvents of a watch, by event and name.
func expectEvents(t *testing.T, w watch.Interface, want ...string) (last *corev1.Pod) {
	t.Helper()
	for _, one := range want {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended, before %s", one)
			}
			name := ""
			if p, is := e.Object.(*corev1.Pod); is {
				last, name = p, p.Name
			} else if s, is := e.Object.(*metav1.Status); is {
				name = fmt.Sprint(s.Code)
			}
			if got := string(e.Type) + " " + name; got != one {
				t.Fatalf("heard %s, wanted %s", got, one)
			}
		case <-time.After(testwait.HangLimit):
			t.Fatalf("nothing was heard, instead of %s", one)
		}
	}
	return last
}

// resumedAgain, in any order: each member continues from its position, and none repeats an event.
func heardAgain(t *testing.T, w watch.Interface, want ...string) {
	t.Helper()
	for len(want) > 0 {
		select {
		case e := <-w.ResultChan():
			p, is := e.Object.(*corev1.Pod)
			if !is {
				t.Fatalf("heard %v", e)
			}
			at := slices.Index(want, string(e.Type)+" "+p.Name)
			if at < 0 {
				t.Fatalf("heard %s %s, wanted %v", e.Type, p.Name, want)
			}
			want = slices.Delete(want, at, at+1)
		case <-time.After(testwait.HangLimit):
			t.Fatalf("not heard: %v", want)
		}
	}
}

// TestWatchesGoOnOverMembers: from a list, from any event of a watch, past members that go
// and come, and end with 410 where it is not known what was missed.
func TestWatchesGoOnOverMembers(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("watched")
	fleet.joinMembers(t, ns, "bergen", "kyoto")
	pods := u.kube.CoreV1().Pods(ns)
	fleet.put("bergen", watch.Added, newPod(ns, "a", nil))
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fleet.put("kyoto", watch.Added, newPod(ns, "b", nil))
	from := func(version string) watch.Interface {
		w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	w := from(list.ResourceVersion)
	first := expectEvents(t, w, "ADDED b.kyoto")
	fleet.put("bergen", watch.Modified, newPod(ns, "a", map[string]string{"x": "y"}))
	expectEvents(t, w, "MODIFIED a.bergen")
	if _, err := pods.Create(t.Context(), newTemplate(ns, "solo"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := expectEvents(t, w, "ADDED solo")
	fleet.put("kyoto", watch.Deleted, newPod(ns, "b", nil))
	expectEvents(t, w, "DELETED b.kyoto")
	fleet.put("kyoto", watch.Added, newPod(ns, "solo", nil))
	if runs := expectEvents(t, w, "MODIFIED solo"); runs.Status.Phase != corev1.PodRunning {
		t.Errorf("a running template is reported as %v", runs.Status)
	}
	w.Stop()

	again := from(first.ResourceVersion)
	heardAgain(t, again, "MODIFIED a.bergen", "ADDED solo", "DELETED b.kyoto", "MODIFIED solo")

	// A stored object may be written by the version that a watch gave, if it is the last.
	stored.Labels = map[string]string{"from": "a-watch"}
	if _, err := pods.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Errorf("written by the version of a watch: %v", err)
	}
	if _, err := pods.Update(t.Context(), stored, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("written by an old version of a watch: %v", err)
	}
}

// TestWatchesAreTrueOfMembersThatGo: a disconnected member causes no event. When it returns, its
// changes are reported, or the watch ends.
func TestWatchesAreTrueOfMembersThatGo(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("watched")
	fleet.joinMembers(t, ns, "turku", "osaka")
	pods := u.kube.CoreV1().Pods(ns)
	fleet.put("turku", watch.Added, newPod(ns, "a", nil))
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	expectEvents(t, w, "ADDED a.turku")
	fleet.removeMember("turku")
	fleet.put("osaka", watch.Added, newPod(ns, "c", nil))
	expectEvents(t, w, "ADDED c.osaka")
	fleet.withAgent("turku", func(a *agent) { a.put(watch.Added, newPod(ns, "d", nil)); a.away = false })
	expectEvents(t, w, "ADDED d.turku")

	// A member without a history of its absence ends the watch.
	fleet.removeMember("turku")
	fleet.withAgent("turku", func(a *agent) { a.oldest, a.away = a.version+1, false })
	expectEvents(t, w, "ERROR 410")
	if _, ok := <-w.ResultChan(); ok {
		t.Error("the watch goes on after 410")
	}
	for _, version := range []string{"5", list.ResourceVersion + "0", "1000000000000000001"} {
		if _, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version}); !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from version %s: %v", version, err)
		}
		if _, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: version}); !apierrors.IsResourceExpired(err) {
			t.Errorf("a list at version %s: %v", version, err)
		}
	}
}

// TestInformersSeeOneCluster: client-go's, which stream their first list; and members that
// get their first rows while they watch.
func TestInformersSeeOneCluster(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("informed")
	fleet.joinMembers(t, ns, "bodo")
	fleet.put("bodo", watch.Added, newPod(ns, "a", nil))
	factory := informers.NewSharedInformerFactoryWithOptions(u.kube, 0, informers.WithNamespace(ns))
	informer := factory.Core().V1().Pods().Informer()
	factory.Start(t.Context().Done())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	has := func(want ...string) {
		t.Helper()
		testwait.Until(t, fmt.Sprintf("the informer has %v", want), func(context.Context) (bool, string) {
			var got []string
			for _, obj := range informer.GetStore().List() {
				got = append(got, obj.(*corev1.Pod).Name)
			}
			slices.Sort(got)
			return slices.Equal(got, want), fmt.Sprint(got)
		})
	}
	has("a.bodo")
	fleet.put("bodo", watch.Added, newPod(ns, "b", nil))
	has("a.bodo", "b.bodo")
	fleet.joinMembers(t, ns, "nara")
	fleet.put("nara", watch.Added, newPod(ns, "c", nil))
	has("a.bodo", "b.bodo", "c.nara")
	fleet.removeMember("nara")
	fleet.put("bodo", watch.Deleted, newPod(ns, "a", nil))
	has("b.bodo", "c.nara")
	// A change that cannot be reported, during the absence, is covered by another list.
	fleet.withAgent("nara", func(a *agent) {
		a.put(watch.Deleted, newPod(ns, "c", nil))
		a.put(watch.Added, newPod(ns, "e", nil))
		a.oldest, a.away = a.version, false
	})
	has("b.bodo", "e.nara")
}

// TestTheHubItselfAsksNoMember: garbage collection and the deletion of a namespace go their
// way, with a member away and one that would answer.
func TestTheHubItselfAsksNoMember(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("own")
	fleet.joinMembers(t, ns, "asked", "gone")
	fleet.put("asked", watch.Added, newPod(ns, "web-1", nil))
	fleet.removeMember("gone")
	own := newUser(t, hub.LoopbackConfig())
	if list, err := own.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil || slices.Contains(podNames(list), "web-1.asked") {
		t.Errorf("the hub's controllers see %v, %v", podNames(list), err)
	}
	if _, err := own.kube.CoreV1().Pods(ns).Get(t.Context(), "web-1.asked", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the hub's controllers get it: %v", err)
	}
	owner, err := u.kube.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, policy := range map[string]metav1.DeletionPropagation{"kept": metav1.DeletePropagationOrphan, "taken": metav1.DeletePropagationForeground} {
		p := newPod(ns, name, nil)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
		if _, err := own.kube.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitGarbageCollector(t, own, ns)
		if err := own.kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "garbage collection, "+string(policy), func(ctx context.Context) (bool, string) {
			_, owned := own.kube.CoreV1().ConfigMaps(ns).Get(ctx, "owner", metav1.GetOptions{})
			got, err := own.kube.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
			if policy == metav1.DeletePropagationOrphan {
				return apierrors.IsNotFound(owned) && err == nil && len(got.OwnerReferences) == 0, fmt.Sprint(owned, err)
			}
			return apierrors.IsNotFound(owned) && apierrors.IsNotFound(err), fmt.Sprint(owned, err)
		})
		if owner, err = u.kube.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := own.kube.CoreV1().Pods(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Errorf("the hub deletes what is stored: %v", err)
	}
	if err := u.kube.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the namespace is gone", func(ctx context.Context) (bool, string) {
		_, err := own.kube.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	for _, asked := range fleet.takeRequests() {
		if strings.HasPrefix(asked, "uid-asked ") || strings.HasPrefix(asked, "uid-gone ") {
			t.Errorf("a member was asked: %q", asked)
		}
	}
}

// awaitGarbageCollector returns once the garbage collector knows every Pod that exists. An owner that is
// deleted with Orphan before the collector knows its dependents takes them along, upstream too.
// The collector handles Pods in the order of their events, so it knows all earlier Pods when it has
// deleted this one, whose owner does not exist.
func awaitGarbageCollector(t *testing.T, own *user, ns string) {
	t.Helper()
	last := newPod(ns, "ownerless", nil)
	last.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: "absent"}}
	if _, err := own.kube.CoreV1().Pods(ns).Create(t.Context(), last, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the garbage collector deletes a Pod without its owner", func(ctx context.Context) (bool, string) {
		_, err := own.kube.CoreV1().Pods(ns).Get(ctx, last.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// TestWritesGoToTheMember: in the user's name, of exactly that object; or are refused.
func TestWritesGoToTheMember(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("written")
	fleet.joinMembers(t, ns, "lima")
	fleet.put("lima", watch.Added, newPod(ns, "web-1", map[string]string{"app": "web"}))
	fleet.put("lima", watch.Added, newPod(ns, "solo", nil))
	pods := u.kube.CoreV1().Pods(ns)
	if _, err := pods.Create(t.Context(), newTemplate(ns, "solo"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	did := func(what string, err error, want ...string) {
		t.Helper()
		fleet.mu.Lock()
		a := fleet.agents["uid-lima"]
		got := a.people
		a.people = nil
		fleet.mu.Unlock()
		if err != nil || len(got) != 1 {
			t.Errorf("%s: the member was asked %q, %v", what, got, err)
			return
		}
		for _, w := range want {
			if !strings.Contains(got[0], w) {
				t.Errorf("%s: the member was asked %s, which has no %s", what, got[0], w)
			}
		}
	}
	at := "/api/v1/namespaces/" + ns + "/pods/web-1"
	_, err := pods.Patch(t.Context(), "web-1.lima", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"new":"one","app":null}}}`), metav1.PatchOptions{FieldManager: "test"})
	did("a patch", err, "PATCH as atoll-admin "+at+"?", "fieldManager=test", `"labels":{"app":null,"new":"one"}`, `"uid":"uid-web-1"`, `"resourceVersion":"11"`)
	got, err := pods.Get(t.Context(), "web-1.lima", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.Annotations = map[string]string{"a": "b"}
	_, err = pods.Update(t.Context(), got, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	did("an update", err, "PATCH as atoll-admin "+at+"?dryRun=All", `"annotations":{"a":"b"}`)
	err = pods.Delete(t.Context(), "web-1.lima", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](7)})
	did("a delete", err, "DELETE as atoll-admin "+at+" ", `"uid":"uid-web-1"`, `"gracePeriodSeconds":7`)
	_, err = pods.UpdateEphemeralContainers(t.Context(), "web-1.lima", func() *corev1.Pod {
		got.Annotations, got.Name = nil, "web-1.lima"
		got.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "i", ImagePullPolicy: "Always", TerminationMessagePolicy: "File"}}}
		return got
	}(), metav1.UpdateOptions{})
	did("a debug container", err, "PATCH as atoll-admin "+at+"/ephemeralcontainers", `"name":"debug"`)
	plain := rest.CopyConfig(u.config)
	plain.NextProtos = []string{"http/1.1"} // which connections are upgraded by
	err = newUser(t, plain).kube.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name("web-1.lima").SubResource("exec").
		Param("command", "ls").SetHeader("Connection", "Upgrade").SetHeader("Upgrade", "SPDY/3.1").Do(t.Context()).Error()
	did("exec", err, "POST as atoll-admin "+at+"/exec?command=ls")
	err = u.kube.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/" + ns + "/pods/solo/proxy/metrics/x").Do(t.Context()).Error()
	did("the proxy of a template", err, "GET as atoll-admin /api/v1/namespaces/"+ns+"/pods/solo/proxy/metrics/x")

	log, err := pods.GetLogs("web-1.lima", &corev1.PodLogOptions{Container: "c", TailLines: ptr.To[int64](3)}).DoRaw(t.Context())
	if err != nil || string(log) != "log of web-1 by container=c&tailLines=3\n" {
		t.Errorf("the log: %q, %v", log, err)
	}
	if log, err = pods.GetLogs("solo", &corev1.PodLogOptions{}).DoRaw(t.Context()); err != nil || !strings.HasPrefix(string(log), "log of solo") {
		t.Errorf("the log of a template: %q, %v", log, err)
	}

	expectRefusals(t, pods, got)
	if _, err := pods.Get(t.Context(), "solo", metav1.GetOptions{}); err != nil {
		t.Errorf("a refused collection took what is stored: %v", err)
	}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "!" + atoll.LabelCluster}); err != nil {
		t.Errorf("what is stored is not deleted: %v", err)
	}
}

// expectRefusals of changes that neither the hub nor the user may make.
func expectRefusals(t *testing.T, pods typedcorev1.PodInterface, got *corev1.Pod) {
	t.Helper()
	stale := got.DeepCopy()
	stale.ResourceVersion, stale.Labels = "9", map[string]string{atoll.LabelCluster: "lima"}
	moved := got.DeepCopy()
	moved.Labels[atoll.LabelCluster] = "oslo"
	orphaned := got.DeepCopy()
	orphaned.OwnerReferences = nil
	for what, err := range map[string]error{
		"an old version":    secondResult(pods.Update(t.Context(), stale, metav1.UpdateOptions{})),
		"another cluster":   secondResult(pods.Update(t.Context(), moved, metav1.UpdateOptions{})),
		"no owner":          secondResult(pods.Update(t.Context(), orphaned, metav1.UpdateOptions{})),
		"its status":        secondResult(pods.UpdateStatus(t.Context(), got, metav1.UpdateOptions{})),
		"a collection":      pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
		"a complete one":    pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "!" + atoll.LabelCluster + "," + atoll.LabelComplete + "=true"}),
		"what is not there": pods.Delete(t.Context(), "web-9.lima", metav1.DeleteOptions{}),
	} {
		if code := apierrors.ReasonForError(err); err == nil || code == metav1.StatusReasonInternalError || code == metav1.StatusReasonUnknown {
			t.Errorf("%s: %v", what, err)
		}
	}
	fleet.mu.Lock()
	if people := fleet.agents["uid-lima"].people; len(people) > 0 {
		t.Errorf("what was refused reached the member: %q", people)
	}
	fleet.mu.Unlock()
}

// TestAListOfAllNamespacesIsGoneOnFrom where a hub did not know yet that something is placed: a
// watch from it gets the events of objects that the list lacked.
func TestAListOfAllNamespacesIsGoneOnFrom(t *testing.T) {
	u := newAdmin(t, hub)
	known, unknown := u.createNamespace("known"), u.createNamespace("unknown")
	fleet.joinMembers(t, known, "vaasa")
	fleet.put("vaasa", watch.Added, newPod(known, "a", map[string]string{"is": unknown}))
	fleet.put("vaasa", watch.Added, newPod(unknown, "b", map[string]string{"is": unknown}))
	all, only := u.kube.CoreV1().Pods(""), "is="+unknown
	list, err := all.List(t.Context(), metav1.ListOptions{LabelSelector: only})
	if err != nil || !slices.Equal(podNames(list), []string{"a.vaasa"}) {
		t.Fatalf("listed are %v, %v", podNames(list), err)
	}
	fleet.mu.Lock()
	fleet.placed[unknown] = []string{"vaasa"}
	fleet.mu.Unlock()
	defer func() {
		fleet.mu.Lock()
		defer fleet.mu.Unlock()
		delete(fleet.placed, unknown)
	}()
	w, err := all.Watch(t.Context(), metav1.ListOptions{LabelSelector: only, ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	heardAgain(t, w, "ADDED a.vaasa", "ADDED b.vaasa")
}
