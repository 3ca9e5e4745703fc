package apiserver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// setLikely sets which clusters have a template of a name.
func (m *members) setLikely(t *testing.T, template string, clusters ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.likely[template] = clusters
	t.Cleanup(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.likely, template)
	})
}

// takeWrites are the requests of people that a member got since the last call.
func (m *members) takeWrites(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.agents["uid-"+name]
	got := a.people
	a.people = nil
	return strings.Join(got, "\n")
}

// expectError compares an error's reason and message.
func expectError(t *testing.T, what string, err error, reason metav1.StatusReason, contains ...string) {
	t.Helper()
	if apierrors.ReasonForError(err) != reason {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, want := range contains {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, without %q", what, err, want)
		}
	}
}

// TestAPodIsReadByItsOwnName: where one cluster has it. The answer has the name of the request.
func TestAPodIsReadByItsOwnName(t *testing.T) {
	u, warned := newAdmin(t, hub).withWarnings()
	ns := u.createNamespace("named")
	fleet.joinMembers(t, ns, "moss", "otsu")
	fleet.put("moss", watch.Added, newPod(ns, "db-0", map[string]string{"app": "db"}))
	fleet.put("moss", watch.Added, newPod(ns, "both-0", nil))
	fleet.put("otsu", watch.Added, newPod(ns, "both-0", nil))
	fleet.put("moss", watch.Added, newPod("elsewhere", "db-7", map[string]string{"lie": "yes"}))
	pods := u.kube.CoreV1().Pods(ns)
	own, err := pods.Get(t.Context(), "db-0", metav1.GetOptions{})
	full, ferr := pods.Get(t.Context(), "db-0.moss", metav1.GetOptions{})
	if err != nil || ferr != nil || own.Name != "db-0" || full.Name != "db-0.moss" || own.UID != full.UID || own.Labels[atoll.LabelCluster] != "moss" || own.ResourceVersion != full.ResourceVersion {
		t.Errorf("by its own name: %+v, %v; by its full name: %+v, %v", own.ObjectMeta, err, full.ObjectMeta, ferr)
	}
	if log, err := pods.GetLogs("db-0", &corev1.PodLogOptions{Container: "c"}).DoRaw(t.Context()); err != nil || string(log) != "log of db-0 by container=c\n" {
		t.Errorf("its log: %q, %v", log, err)
	}
	if text := warned.takeText(); text != "" {
		t.Errorf("warned of %s", text)
	}
	_, err = pods.Get(t.Context(), "both-0", metav1.GetOptions{})
	expectError(t, "of two clusters", err, metav1.StatusReasonBadRequest, "pod "+ns+"/both-0 runs in 2 clusters; name one of: both-0.moss, both-0.otsu")
	err = pods.GetLogs("both-0", &corev1.PodLogOptions{}).Do(t.Context()).Error()
	expectError(t, "the log of two", err, metav1.StatusReasonBadRequest, "name one of: both-0.moss, both-0.otsu")
	fleet.put("moss", watch.Added, newTemplate(ns, "left")) // by a template that is deleted
	for _, name := range []string{"db-7", "db-0.mars", "left"} {
		_, err = pods.Get(t.Context(), name, metav1.GetOptions{})
		if expectError(t, "none", err, metav1.StatusReasonNotFound); err == nil || err.Error() != `pods "`+name+`" not found` {
			t.Errorf("none: %v", err)
		}
	}
	if list, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil || !slices.Equal(podNames(list), []string{"both-0.moss", "both-0.otsu", "db-0.moss", "left.moss"}) {
		t.Errorf("a list has %v, %v", podNames(list), err)
	}

	fleet.setLikely(t, "db", "moss")
	fleet.takeRequests()
	if _, err := pods.Get(t.Context(), "db-0", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for _, asked := range fleet.takeRequests() {
		if !strings.HasPrefix(asked, "uid-moss ") {
			t.Errorf("a cluster without a fitting template is asked: %s", asked)
		}
	}
	if _, err := newUser(t, hub.LoopbackConfig()).kube.CoreV1().Pods(ns).Get(t.Context(), "db-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the hub itself gets it: %v", err)
	}

	// A template of the name goes first, whether it runs or not.
	if _, err := pods.Create(t.Context(), newTemplate(ns, "db-0"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored, err := pods.Get(t.Context(), "db-0", metav1.GetOptions{})
	list, lerr := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=db-0"})
	if err != nil || lerr != nil || stored.UID == own.UID || len(list.Items) != 1 || list.Items[0].UID != stored.UID {
		t.Errorf("a template of the name: %v, %v, and in a list %v, %v", stored.ObjectMeta, err, podNames(list), lerr)
	}
}

// TestAPodIsChangedByItsOwnName: as the user, in its cluster, and never while another cluster may be
// meant.
func TestAPodIsChangedByItsOwnName(t *testing.T) {
	u, warned := newAdmin(t, hub).withWarnings()
	ns := u.createNamespace("named")
	fleet.joinMembers(t, ns, "rauma", "ube")
	fleet.put("rauma", watch.Added, newPod(ns, "db-0", map[string]string{"app": "db"}))
	fleet.put("ube", watch.Added, newPod(ns, "web-0", nil))
	pods := u.kube.CoreV1().Pods(ns)
	at := " as atoll-admin /api/v1/namespaces/" + ns + "/pods/db-0"
	did := func(what string, err error, want ...string) {
		t.Helper()
		got := fleet.takeWrites("rauma")
		for _, w := range want {
			if err != nil || !strings.Contains(got, w) {
				t.Errorf("%s: %v; the member was asked %q, without %q", what, err, got, w)
			}
		}
		if other := fleet.takeWrites("ube"); other != "" {
			t.Errorf("%s: another member was asked %q", what, other)
		}
	}
	got, err := pods.Get(t.Context(), "db-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got.Annotations = map[string]string{"a": "b"}
	answer, err := pods.Update(t.Context(), got, metav1.UpdateOptions{})
	did("an update of what was read", err, "PATCH"+at, `"annotations":{"a":"b"}`)
	if err == nil && answer.Name != "db-0" {
		t.Errorf("the answer to an update is named %s", answer.Name)
	}
	answer, err = pods.Patch(t.Context(), "db-0", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"new":"one"}}}`), metav1.PatchOptions{})
	did("a patch", err, "PATCH"+at, `"labels":{"new":"one"}`)
	if err == nil && answer.Name != "db-0" {
		t.Errorf("the answer to a patch is named %s", answer.Name)
	}
	exec := func(name string) error {
		plain := rest.CopyConfig(u.config)
		plain.NextProtos = []string{"http/1.1"}
		return newUser(t, plain).kube.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(name).SubResource("exec").
			Param("command", "ls").SetHeader("Connection", "Upgrade").SetHeader("Upgrade", "SPDY/3.1").Do(t.Context()).Error()
	}
	did("exec", exec("db-0"), "POST"+at+"/exec?command=ls")
	did("a proxy", u.kube.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/"+ns+"/pods/db-0/proxy/x").Do(t.Context()).Error(), "GET"+at+"/proxy/x")
	did("an eviction", pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db-0"}}), "POST"+at+"/eviction")
	did("a delete", pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{}), "DELETE"+at, `"uid":"uid-db-0"`)
	expectError(t, "a delete of none", pods.Delete(t.Context(), "db-9", metav1.DeleteOptions{}), metav1.StatusReasonNotFound)

	// A cluster that does not answer may have a pod of the name too.
	fleet.removeMember("ube")
	warned.takeText()
	if _, err := pods.Get(t.Context(), "db-0", metav1.GetOptions{}); err != nil {
		t.Errorf("read beside a cluster that is away: %v", err)
	}
	if text := warned.takeText(); !strings.Contains(text, "more clusters may have a pod db-0: cluster ube cannot be reached") {
		t.Errorf("warned of %q", text)
	}
	refusal := []string{"pod " + ns + "/db-0 runs in cluster rauma, and more clusters may have a pod of this name: cluster ube cannot be reached", "name it db-0.rauma"}
	expectError(t, "a delete", pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{}), metav1.StatusReasonServiceUnavailable, refusal...)
	expectError(t, "exec", exec("db-0"), metav1.StatusReasonServiceUnavailable, refusal...)
	_, err = pods.Patch(t.Context(), "db-0", types.MergePatchType, []byte(`{"metadata":{"labels":{"new":"two"}}}`), metav1.PatchOptions{})
	expectError(t, "a patch", err, metav1.StatusReasonServiceUnavailable, refusal...)
	if got := fleet.takeWrites("rauma"); got != "" {
		t.Errorf("what was refused reached the member: %q", got)
	}
	_, err = pods.Get(t.Context(), "web-0", metav1.GetOptions{})
	expectError(t, "one that may be where nothing answers", err, metav1.StatusReasonNotFound, `pods "web-0" not found; it may be where the hub cannot look: cluster ube cannot be reached`)
	expectError(t, "a delete of it", pods.Delete(t.Context(), "web-0", metav1.DeleteOptions{}), metav1.StatusReasonNotFound, "cluster ube cannot be reached")
	fleet.setLikely(t, "db", "rauma")
	did("a delete where the other has no fitting template", pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{}), "DELETE"+at)
	did("a delete by the full name", pods.Delete(t.Context(), "db-0.rauma", metav1.DeleteOptions{}), "DELETE"+at)
	// A server-side apply creates a template. No cluster gets it by claiming to have a pod of the name.
	answer, err = pods.Patch(t.Context(), "db-0", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"db-0"},"spec":{"containers":[{"name":"c","image":"i"}]}}`), metav1.PatchOptions{FieldManager: "test"})
	if got := fleet.takeWrites("rauma"); err != nil || answer.UID == "uid-db-0" || got != "" {
		t.Errorf("an apply of a name that a cluster has: UID %s, %v; the cluster was asked %q", answer.UID, err, got)
	}
	// A new template is not held up.
	if _, err := pods.Patch(t.Context(), "new-0", types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new-0"},"spec":{"containers":[{"name":"c","image":"i"}]}}`), metav1.PatchOptions{FieldManager: "test"}); err != nil {
		t.Errorf("a new template is applied: %v", err)
	}
}

// selectName selects one name.
func selectName(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
}

// watchNamed watches one name from a version.
func watchNamed(t *testing.T, pods typedcorev1.PodInterface, name, version string) watch.Interface {
	t.Helper()
	options := selectName(name)
	options.ResourceVersion = version
	w, err := pods.Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// TestAPodIsAwaitedByItsOwnName, as kubectl wait and kubectl delete do: by a list of the name, and a
// watch from it.
func TestAPodIsAwaitedByItsOwnName(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("named")
	fleet.joinMembers(t, ns, "visby", "ito")
	fleet.put("visby", watch.Added, newPod(ns, "db-0", nil))
	fleet.put("visby", watch.Added, newPod(ns, "db-1", nil))
	pods := u.kube.CoreV1().Pods(ns)
	list, err := pods.List(t.Context(), selectName("db-0"))
	if err != nil || !slices.Equal(podNames(list), []string{"db-0"}) || list.Items[0].Labels[atoll.LabelCluster] != "visby" {
		t.Fatalf("listed are %v, %v", podNames(list), err)
	}
	// A deletion between the list and the watch is heard of, without another question for the name.
	fleet.put("visby", watch.Deleted, newPod(ns, "db-0", nil))
	fleet.takeRequests()
	w := watchNamed(t, pods, "db-0", list.ResourceVersion)
	expectEvents(t, w, "DELETED db-0")
	fleet.put("visby", watch.Modified, newPod(ns, "db-1", nil))
	fleet.put("ito", watch.Added, newPod(ns, "db-0", nil))
	fleet.put("visby", watch.Added, newPod(ns, "db-0", nil))
	expectEvents(t, w, "ADDED db-0")
	for _, asked := range fleet.takeRequests() {
		if !strings.HasPrefix(asked, "uid-visby ") || !strings.Contains(asked, "fieldSelector=metadata.name%3Ddb-0") {
			t.Errorf("the watch asks %s", asked)
		}
	}
	fleet.put("ito", watch.Deleted, newPod(ns, "db-0", nil))
	now := watchNamed(t, pods, "db-0", "0")
	expectEvents(t, now, "ADDED db-0")
	fleet.put("visby", watch.Modified, newPod(ns, "db-0", map[string]string{"x": "y"}))
	expectEvents(t, now, "MODIFIED db-0")
	expectEvents(t, w, "MODIFIED db-0")
	none, err := pods.List(t.Context(), selectName("db-9"))
	if err != nil || len(none.Items) > 0 {
		t.Errorf("a list of none: %v, %v", podNames(none), err)
	}
	fleet.takeRequests()
	later := watchNamed(t, pods, "db-9", none.ResourceVersion)
	if asked := fleet.takeRequests(); len(asked) > 0 {
		t.Errorf("a watch from a list of none asks %q", asked)
	}

	// A template of the name ends the watch of the running pod, and new watches are of the template.
	for _, name := range []string{"db-0", "db-9"} {
		if _, err := pods.Create(t.Context(), newTemplate(ns, name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expectEvents(t, w, "ERROR 410")
	expectEvents(t, later, "ADDED db-9")
	before := selectName("db-0")
	before.ResourceVersion = list.ResourceVersion
	_, err = pods.Watch(t.Context(), before)
	expectError(t, "a watch from before the template", err, metav1.StatusReasonExpired)
}

// TestAListOfAnOwnNameIsOfOneCluster: another one with the name must be chosen, and one that does not
// answer is named.
func TestAListOfAnOwnNameIsOfOneCluster(t *testing.T) {
	u, warned := newAdmin(t, hub).withWarnings()
	ns := u.createNamespace("named")
	fleet.joinMembers(t, ns, "lund", "mito")
	fleet.put("lund", watch.Added, newPod(ns, "db-1", nil))
	fleet.put("lund", watch.Added, newPod(ns, "both-0", nil))
	fleet.put("mito", watch.Added, newPod(ns, "both-0", nil))
	pods := u.kube.CoreV1().Pods(ns)
	_, err := pods.List(t.Context(), selectName("both-0"))
	expectError(t, "a list of two", err, metav1.StatusReasonBadRequest, "name one of: both-0.lund, both-0.mito")
	_, err = pods.Watch(t.Context(), selectName("both-0"))
	expectError(t, "a watch of two", err, metav1.StatusReasonBadRequest, "name one of: both-0.lund, both-0.mito")
	narrowed := selectName("both-0")
	narrowed.LabelSelector = atoll.LabelCluster + "=mito"
	if list, err := pods.List(t.Context(), narrowed); err != nil || len(list.Items) != 1 || list.Items[0].Name != "both-0" || list.Items[0].Labels[atoll.LabelCluster] != "mito" {
		t.Errorf("of one cluster: %v, %v", podNames(list), err)
	}
	all, err := u.kube.CoreV1().Pods("").List(t.Context(), selectName("db-1"))
	if err != nil || slices.ContainsFunc(all.Items, func(p corev1.Pod) bool { return p.Namespace == ns }) {
		t.Errorf("of all namespaces: %v, %v", podNames(all), err)
	}

	warned.takeText()
	fleet.removeMember("mito")
	complete := selectName("db-1")
	complete.LabelSelector = atoll.LabelComplete + "=true"
	_, err = pods.List(t.Context(), complete)
	expectError(t, "a complete list", err, metav1.StatusReasonServiceUnavailable, "pods would be missing", "cluster mito cannot be reached")
	for name, want := range map[string][]string{"db-1": {"db-1"}, "db-9": nil} {
		if list, err := pods.List(t.Context(), selectName(name)); err != nil || !slices.Equal(podNames(list), want) {
			t.Errorf("%s beside a cluster that is away: %v, %v", name, podNames(list), err)
		}
		if text := warned.takeText(); !strings.Contains(text, "more clusters may have a pod "+name+": cluster mito cannot be reached") {
			t.Errorf("warned of %q", text)
		}
	}
}

// TestAnOwnNameIsNoRight: the hub's RBAC counts, by the name of the request.
func TestAnOwnNameIsNoRight(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("named")
	fleet.joinMembers(t, ns, "inari")
	fleet.put("inari", watch.Added, newPod(ns, "db-0", nil))
	u.mustApply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: full, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [pods, pods/log], resourceNames: [db-0.inari], verbs: [get]}]
`, ns))
	u.mustApply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: full, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: full}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: joan}]
`, ns))
	c := rest.CopyConfig(u.config)
	c.Impersonate = rest.ImpersonationConfig{UserName: "joan"}
	joan := newUser(t, c).kube.CoreV1().Pods(ns)
	testwait.Until(t, "joan may read it by its full name", func(ctx context.Context) (bool, string) {
		_, err := joan.Get(ctx, "db-0.inari", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	fleet.takeRequests()
	for what, err := range map[string]error{
		"get":    secondResult(joan.Get(t.Context(), "db-0", metav1.GetOptions{})),
		"log":    secondResult(joan.GetLogs("db-0", &corev1.PodLogOptions{}).DoRaw(t.Context())),
		"list":   secondResult(joan.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=db-0"})),
		"delete": joan.Delete(t.Context(), "db-0", metav1.DeleteOptions{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if asked := fleet.takeRequests(); len(asked) > 0 {
		t.Errorf("what was refused reached a member: %q", asked)
	}
}
