package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/api/crds"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/testwait"
)

// cohort is a number of Clusters of one test, which a label tells.
type cohort struct {
	*user
	label    string
	selector string
}

// newCohort makes clusters of these names, accepted but for those that begin with "new".
func newCohort(t *testing.T, names ...string) *cohort {
	t.Helper()
	f := &cohort{user: newAdmin(t, hub), label: rand.String(6)}
	f.selector = "fleet=" + f.label
	manifest, err := crds.Files.ReadFile("atoll.dev_clusters.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Another test defines clusters otherwise.
	t.Cleanup(func() { f.deleteDefinition(context.Background()) })
	f.createDefinition(string(manifest), definedClusters)
	for _, name := range names {
		// The mapping does not use discovery, which sees the newly defined kind later.
		c := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "atoll.dev/v1alpha1", "kind": "Cluster",
			"metadata": map[string]any{"name": f.fullName(name), "labels": map[string]any{"fleet": f.label}},
			"spec":     map[string]any{"accepted": !strings.HasPrefix(name, "new"), "region": "eu"},
		}}
		if _, err := f.clusterClient().Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.clusterClient().Delete(context.Background(), f.fullName(name), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("clean up: %v", err)
			}
		})
	}
	return f
}

const definedClusters = "clusters.atoll.dev"

// deleteDefinition waits until clusters are defined no more.
func (f *cohort) deleteDefinition(ctx context.Context) {
	f.t.Helper()
	crds := f.resourceClient("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := crds.Get(ctx, definedClusters, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		f.t.Errorf("%s stays: %v", definedClusters, err)
	}
}

func (f *cohort) fullName(short string) string { return short + "-" + f.label }

func (f *cohort) clusterClient() dynamic.NamespaceableResourceInterface {
	return f.resourceClient("atoll.dev", "v1alpha1", "clusters")
}

// getCluster as it is stored.
func (f *cohort) getCluster(name string) *v1alpha1.Cluster {
	f.t.Helper()
	u, err := f.clusterClient().Get(f.t.Context(), f.fullName(name), metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	c := &v1alpha1.Cluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
		f.t.Fatal(err)
	}
	return c
}

// patchClusterAsRequestUser a cluster, by a merge patch.
func (f *cohort) patchCluster(name, patch string, parts ...string) {
	f.t.Helper()
	if _, err := f.clusterClient().Patch(f.t.Context(), f.fullName(name), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, parts...); err != nil {
		f.t.Fatal(err)
	}
}

// listNodes of the cohort, by their short names.
func (f *cohort) listNodes(o metav1.ListOptions) []string {
	f.t.Helper()
	o.LabelSelector = strings.TrimPrefix(o.LabelSelector+","+f.selector, ",")
	list, err := f.kube.CoreV1().Nodes().List(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	names := []string{}
	for _, n := range list.Items {
		names = append(names, strings.TrimSuffix(n.Name, "-"+f.label))
	}
	return names
}

func (f *cohort) cordonNode(by kubernetes.Interface, name string, o metav1.PatchOptions) error {
	_, err := by.CoreV1().Nodes().Patch(f.t.Context(), f.fullName(name), types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), o)
	return err
}

func TestEachAcceptedClusterIsANode(t *testing.T) {
	f := newCohort(t, "a", "b", "c", "new")
	f.patchCluster("b", `{"spec":{"region":"us","taints":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}}`)
	f.patchCluster("a", `{"status":{"kubernetesVersion":"v1.36.3","nodes":{"total":5,"ready":4},"resources":{"allocatable":{"cpu":"48"}},
		"conditions":[{"type":"Ready","status":"True","reason":"AgentConnected","message":"","lastTransitionTime":"2026-03-01T10:00:00Z"}]}}`, "status")
	for name, x := range map[string]struct {
		o    metav1.ListOptions
		want []string
	}{
		"all":            {metav1.ListOptions{}, []string{"a", "b", "c"}},
		"a region":       {metav1.ListOptions{LabelSelector: "topology.kubernetes.io/region=us"}, []string{"b"}},
		"a role":         {metav1.ListOptions{LabelSelector: "node-role.kubernetes.io/cluster"}, []string{"a", "b", "c"}},
		"schedulable":    {metav1.ListOptions{FieldSelector: "spec.unschedulable=false"}, []string{"a", "c"}},
		"cordoned":       {metav1.ListOptions{FieldSelector: "spec.unschedulable=true"}, []string{"b"}},
		"a name":         {metav1.ListOptions{FieldSelector: "metadata.name=" + f.fullName("c")}, []string{"c"}},
		"a pending name": {metav1.ListOptions{FieldSelector: "metadata.name=" + f.fullName("new")}, []string{}},
	} {
		if got := f.listNodes(x.o); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
	if _, err := f.kube.CoreV1().Nodes().Get(t.Context(), f.fullName("new"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the node of a cluster that is not accepted: %v", err)
	}
	n, err := f.kube.CoreV1().Nodes().Get(t.Context(), f.fullName("a"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := f.getCluster("a"); n.ResourceVersion != c.ResourceVersion || n.UID != c.UID {
		t.Errorf("node %s %s of cluster %s %s", n.UID, n.ResourceVersion, c.UID, c.ResourceVersion)
	}
	raw, err := f.kube.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/"+f.fullName("a")).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	if cells := fmt.Sprint(table.Rows[0].Cells); !strings.Contains(cells, "Ready cluster") || !strings.Contains(cells, "v1.36.3") || !strings.Contains(cells, "4/5 nodes") {
		t.Errorf("kubectl would print %s", cells)
	}
}

func TestNodesComeInPages(t *testing.T) {
	f := newCohort(t, "a", "b", "c", "new", "z")
	var got []string
	o := metav1.ListOptions{LabelSelector: f.selector, Limit: 1}
	for pages := 0; ; pages++ {
		list, err := f.kube.CoreV1().Nodes().List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) > 1 || pages > 5 {
			t.Fatalf("page %d has %d nodes", pages, len(list.Items))
		}
		for _, n := range list.Items {
			got = append(got, n.Name)
		}
		if o.Continue = list.Continue; o.Continue == "" {
			break
		}
	}
	if want := []string{f.fullName("a"), f.fullName("b"), f.fullName("c"), f.fullName("z")}; !slices.Equal(got, want) {
		t.Errorf("in pages of one came %v, want %v", got, want)
	}
}

// next event of a watch, in short.
func (f *cohort) next(w watch.Interface) string {
	f.t.Helper()
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				f.t.Fatal("the watch ended")
			}
			if n, ok := e.Object.(*corev1.Node); ok && e.Type != watch.Bookmark {
				return fmt.Sprintf("%s %s %t", e.Type, strings.TrimSuffix(n.Name, "-"+f.label), n.Spec.Unschedulable)
			}
			if e.Type == watch.Error {
				f.t.Fatalf("the watch says %v", e.Object)
			}
		case <-f.t.Context().Done():
			f.t.Fatal("nothing came")
		}
	}
}

func (f *cohort) watch(from string) watch.Interface {
	f.t.Helper()
	seconds := int64(60) // a watch from which nothing comes ends
	w, err := f.kube.CoreV1().Nodes().Watch(f.t.Context(), metav1.ListOptions{LabelSelector: f.selector, ResourceVersion: from, TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(w.Stop)
	return w
}

func TestAWatchOfNodesResumes(t *testing.T) {
	f := newCohort(t, "a", "new")
	list, err := f.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: f.selector})
	if err != nil {
		t.Fatal(err)
	}
	first := f.watch(list.ResourceVersion)
	f.patchCluster("new", `{"metadata":{"labels":{"x":"y"}}}`) // of no node
	f.patchCluster("a", `{"spec":{"taints":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}}`)
	seen := f.getCluster("a").ResourceVersion
	f.patchCluster("new", `{"spec":{"accepted":true}}`)
	f.patchCluster("a", `{"spec":{"accepted":false}}`)
	f.patchCluster("new", `{"metadata":{"labels":{"fleet":"another"}}}`)
	events := []string{"MODIFIED a true", "ADDED new false", "DELETED a true", "DELETED new false"}
	for i, want := range events {
		if got := f.next(first); got != want {
			t.Fatalf("event %d: %s, want %s", i, got, want)
		}
	}
	again := f.watch(seen)
	for i, want := range events[1:] {
		if got := f.next(again); got != want {
			t.Fatalf("resumed, event %d: %s, want %s", i, got, want)
		}
	}
}

func TestInformersOfNodesSync(t *testing.T) {
	f := newCohort(t, "a", "b", "new")
	factory := informers.NewSharedInformerFactoryWithOptions(f.kube, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = f.selector }))
	lister := factory.Core().V1().Nodes().Lister()
	informer := factory.Core().V1().Nodes().Informer()
	factory.Start(t.Context().Done())
	testwait.Until(t, "sync", func(context.Context) (bool, string) { return informer.HasSynced(), "not synced" })
	f.patchCluster("new", `{"spec":{"accepted":true}}`)
	testwait.Until(t, "see the new one", func(context.Context) (bool, string) {
		_, err := lister.Get(f.fullName("new"))
		return err == nil, fmt.Sprint(err)
	})
}

// Garbage collectors and the like must not take what is made up for objects.
func TestTheHubItselfSeesNoNodes(t *testing.T) {
	f := newCohort(t, "a")
	own, err := kubernetes.NewForConfig(hub.LoopbackConfig())
	if err != nil {
		t.Fatal(err)
	}
	list, err := own.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("the hub sees %d nodes (%v)", len(list.Items), err)
	}
	if _, err := own.CoreV1().Nodes().Get(t.Context(), f.fullName("a"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the hub gets a node: %v", err)
	}
	resp, err := hub.EtcdClient().Get(t.Context(), "/registry/minions", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || resp.Count > 0 {
		t.Errorf("%d nodes are stored (%v)", resp.Count, err)
	}
}

// clientFor another user, of no group.
func (f *cohort) clientFor(name string) *kubernetes.Clientset {
	f.t.Helper()
	c := rest.CopyConfig(f.config)
	c.Impersonate = rest.ImpersonationConfig{UserName: name}
	kube, err := kubernetes.NewForConfig(c)
	if err != nil {
		f.t.Fatal(err)
	}
	return kube
}

func (f *cohort) grantRules(name string, rules ...rbacv1.PolicyRule) {
	f.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}, Rules: rules}
	role, err := f.kube.RbacV1().ClusterRoles().Create(f.t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}}
	if _, err := f.kube.RbacV1().ClusterRoleBindings().Create(f.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		f.kube.RbacV1().ClusterRoleBindings().Delete(context.Background(), role.Name, metav1.DeleteOptions{})
		f.kube.RbacV1().ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{})
	})
}

// Rights on nodes alone are no way to clusters.
func TestWhoEditsANodeMayEditItsCluster(t *testing.T) {
	f := newCohort(t, "a")
	name := "jane-" + f.label
	jane := f.clientFor(name)
	if err := f.cordonNode(jane, "a", metav1.PatchOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `cannot patch resource "nodes"`) {
		t.Errorf("without any right: %v", err)
	}
	f.grantRules(name, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}})
	testwait.Until(t, "refuse a user with the right to patch nodes alone", func(context.Context) (bool, string) {
		err := f.cordonNode(jane, "a", metav1.PatchOptions{})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `User "`+name+`" cannot patch resource "clusters"`), fmt.Sprint(err)
	})
	if err := f.cordonNode(jane, "a", metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsForbidden(err) {
		t.Errorf("a dry run of it: %v", err)
	}
	f.grantRules(name, rbacv1.PolicyRule{APIGroups: []string{"atoll.dev"}, Resources: []string{"clusters"}, Verbs: []string{"patch"}, ResourceNames: []string{f.fullName("a")}})
	testwait.Until(t, "a dry run by a user with both rights", func(context.Context) (bool, string) {
		err := f.cordonNode(jane, "a", metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil, fmt.Sprint(err)
	})
	if taints := f.getCluster("a").Spec.Taints; len(taints) > 0 {
		t.Errorf("a dry run has left %v", taints)
	}
	if err := f.cordonNode(jane, "a", metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(f.getCluster("a").Spec.Taints), "[{node.kubernetes.io/unschedulable  NoSchedule <nil>}]"; got != want {
		t.Errorf("taints %s, want %s", got, want)
	}
}

func TestNodesAreEditedAtTheVersionThatWasSeen(t *testing.T) {
	f := newCohort(t, "a")
	nodes := f.kube.CoreV1().Nodes()
	n, err := nodes.Get(t.Context(), f.fullName("a"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.patchCluster("a", `{"metadata":{"labels":{"x":"y"}}}`)
	n.Spec.Unschedulable = true
	if _, err := nodes.Update(t.Context(), n, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an object that has changed since: %v", err)
	}
	n.ResourceVersion = ""
	n.Labels["x"] = "z"
	got, err := nodes.Update(t.Context(), n, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := f.getCluster("a")
	if got.ResourceVersion != c.ResourceVersion || !got.Spec.Unschedulable || c.Labels["x"] != "z" || len(c.Spec.Taints) != 1 {
		t.Errorf("an update of any version gives %s %v; the cluster is %s %v %v", got.ResourceVersion, got.Spec, c.ResourceVersion, c.Labels, c.Spec.Taints)
	}
}

func TestWhatNodesCannotIsRefused(t *testing.T) {
	f := newCohort(t, "a")
	nodes := f.kube.CoreV1().Nodes()
	a := f.fullName("a")
	before := f.getCluster("a").ResourceVersion
	_, create := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	_, applied := nodes.Patch(t.Context(), a, types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+a+`"},"spec":{"unschedulable":true}}`), metav1.PatchOptions{FieldManager: "x"})
	_, status := nodes.Patch(t.Context(), a, types.MergePatchType, []byte(`{"status":{"capacity":{"cpu":"1"}}}`), metav1.PatchOptions{}, "status")
	_, provider := nodes.Patch(t.Context(), a, types.MergePatchType, []byte(`{"spec":{"providerID":"x"}}`), metav1.PatchOptions{})
	proxy := f.kube.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + a + "/proxy/pods").Do(t.Context()).Error()
	for what, x := range map[string]struct {
		err  error
		says string
	}{
		"create":            {create, "`atoll token create`"},
		"delete":            {nodes.Delete(t.Context(), a, metav1.DeleteOptions{}), "`atoll remove " + a + "`"},
		"delete collection": {nodes.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}), "`atoll remove NAME`"},
		"apply":             {applied, "apply Cluster/" + a},
		"status":            {status, "reports, and cannot be written"},
		"provider":          {provider, "only taints and unschedulable"},
		"proxy":             {proxy, "`atoll kubeconfig --cluster " + a + "`"},
	} {
		if x.err == nil || !strings.Contains(x.err.Error(), x.says) {
			t.Errorf("%s: %v, want %s", what, x.err, x.says)
		}
	}
	if err := nodes.Delete(t.Context(), "no-such", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete of none: %v", err)
	}
	if after := f.getCluster("a").ResourceVersion; after != before {
		t.Errorf("the cluster was written: %s, then %s", before, after)
	}
}
