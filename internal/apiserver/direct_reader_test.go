package apiserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/crds"
	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/direct"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/testwait"
)

// storedObjects are objects as hubs have stored them over time, by their keys.
var storedObjects = map[string]string{
	"atoll.dev/clusters/full": `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":"full","uid":"0d1f5a4e-0000-4000-8000-000000000001","generation":7,
		"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"tier":"edge"},"annotations":{"a":"<&>\u2028"},"finalizers":["atoll.dev/leave"],
		"managedFields":[{"manager":"kubectl","operation":"Apply","apiVersion":"atoll.dev/v1alpha1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:region":{}}}}]},
		"spec":{"accepted":true,"connection":{"type":"CheckIn","interval":"15m"},"region":"asia","zone":"a","provider":"own","taints":[{"key":"k","value":"v","effect":"NoExecute","timeAdded":"2026-01-02T03:04:05Z"}],"capacity":{"replicas":9,"objects":0,"resources":{"cpu":"4","nvidia.com/gpu":2}}},
		"status":{"kubernetesVersion":"v1.36.3","agentVersion":"v1","apisHash":"h","nodes":{"total":3,"ready":2,"summary":"2/3"},
		"resources":{"allocatable":{"cpu":"4","memory":"16Gi","pods":110},"requested":{"cpu":"1500m"}},
		"conditions":[{"type":"Ready","status":"True","reason":"AgentConnected","message":"","observedGeneration":7,"lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`,
	"atoll.dev/clusters/before-the-default":     `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":"before-the-default","generation":1,"uid":"u"},"spec":{"connection":{}}}`,
	"atoll.dev/clusters/null-where-the-default": `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":"null-where-the-default","generation":1,"uid":"u"},"spec":{"connection":{"type":null,"interval":null}}}`,
	"atoll.dev/clusters/nulls": `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":"nulls","generation":1,"uid":"u","creationTimestamp":null,"labels":null},
		"spec":{"accepted":null,"connection":null,"taints":null},"status":{"nodes":null,"resources":{"allocatable":null},"conditions":null}}`,
	"atoll.dev/clusters/unknown-fields": `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":"unknown-fields","generation":1,"uid":"u","selfLink":"/x","future":1},
		"spec":{"region":"asia","Region":"wrong case","future":{"a":[1]},"connection":{"type":"Stream","future":true}},"status":{"future":"x"},"future":{}}`,
	"atoll.dev/clusters/old":        `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":"old","uid":"u"}}`,
	"atoll.dev/clusters/nothing":    `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":"nothing","generation":2,"uid":"u"},"spec":{},"status":{}}`,
	"atoll.dev/clusters/terminates": `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":"terminates","generation":2,"uid":"u","deletionTimestamp":"2026-01-02T03:04:05Z","deletionGracePeriodSeconds":0,"finalizers":["f"],"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"n","uid":"x"}]}}`,
	"atoll.dev/bundles/shop/full": `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","metadata":{"name":"full","namespace":"shop","uid":"0d1f5a4e-0000-4000-8000-000000000002","generation":2,
		"creationTimestamp":"2026-01-02T03:04:05Z","finalizers":["atoll.dev/bundle"],
		"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"atoll.dev/v1alpha1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{}}}}]},
		"spec":{"source":{"kind":"PropagationPolicy","name":"web"},"group":"g","placement":{"maxClusters":3,"clusterAffinity":{"labelSelector":{"matchLabels":{"env":"prod"}}},
		"spreadConstraints":[{"spreadByField":"region","maxGroups":2}],"failback":{"policy":"WhenHealthy","holdTime":"5m0s"},"replicaScheduling":{"replicaSchedulingType":"Divided","ordinals":{"size":5}}},
		"conflictResolution":"Abort","removal":{"mode":"Orphan","budget":3},"whenUnfit":"Keep"},
		"status":{"revision":"r","items":1,"clusters":{"desired":3,"updated":1,"ready":1,"away":1,"summary":"1/3"},"replicas":4,"conditions":[{"type":"Ready","status":"False","reason":"Progressing","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`,
	"atoll.dev/bundles/shop/defaults": `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","metadata":{"name":"defaults","namespace":"shop","uid":"u"},
		"spec":{"source":{"kind":"Annotation","name":"web"},"placement":{"failback":{},"replicaScheduling":{"replicaSchedulingType":null,"ordinals":{}}},"conflictResolution":"Abort","removal":{},"whenUnfit":"Keep","future":1}}`,
	"atoll.dev/bundles/bank/nulls": `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","metadata":{"name":"nulls","namespace":"bank","uid":"u","generation":1},
		"spec":{"source":{"kind":"Annotation","name":"web"},"placement":{"clusterAffinity":null,"failback":null,"replicaScheduling":null},"conflictResolution":"Abort","removal":{"mode":null,"budget":null},"whenUnfit":"Keep"},"status":null}`,
	"engine.atoll.dev/targetslices/b-0": `{"apiVersion":"engine.atoll.dev/v1alpha1","kind":"TargetSlice","metadata":{"name":"b-0","generation":2,"uid":"u","labels":{"engine.atoll.dev/bundle":"b"}},
		"spec":{"bundle":{"uid":"b","namespace":"ns","name":"n"},"words":["x","\u00e9"],"rows":"a <1>\nb 2\n"},"status":{"words":["w"],"rows":"a ok\n"}}`,
	"engine.atoll.dev/targetslices/b-1": `{"apiVersion":"engine.atoll.dev/v1alpha1","kind":"TargetSlice","metadata":{"name":"b-1","uid":"u"},"spec":{"bundle":{"uid":"b","name":""},"words":null,"future":1}}`,
	"engine.atoll.dev/revisions/b-1-0": `{"apiVersion":"engine.atoll.dev/v1alpha1","kind":"Revision","metadata":{"name":"b-1-0","generation":1,"uid":"u"},
		"spec":{"bundle":{"uid":"b","namespace":"ns","name":"n"},"number":1,"items":2,"content":"aGVsbG8=","parts":[{"name":"p","secret":true},{"name":"q"}]}}`,
	"engine.atoll.dev/revisions/b-2-0": `{"apiVersion":"engine.atoll.dev/v1alpha1","kind":"Revision","metadata":{"name":"b-2-0","uid":"u"},"spec":{"bundle":{"uid":"b","name":"n"},"number":2,"items":0,"content":null,"future":"x"}}`,
}

// kinds that are read directly, and lists of them.
var readDirectly = map[string]struct {
	kind direct.Kind
	of   func(direct.Stores) *direct.Store
}{
	"Cluster":     {direct.ClusterKind(), func(s direct.Stores) *direct.Store { return s.Clusters }},
	"TargetSlice": {direct.SliceKind(), func(s direct.Stores) *direct.Store { return s.Slices }},
	"Bundle":      {direct.BundleKind(), func(s direct.Stores) *direct.Store { return s.Bundles }},
	"Revision":    {direct.RevisionKind(), func(s direct.Stores) *direct.Store { return s.Revisions }},
}

// createDefinitions Atoll's kinds, and wait until they are served.
func createDefinitions(t testing.TB, s *apiserver.Server) {
	t.Helper()
	c, err := client.New(plainConfig(s), client.Options{Scheme: state.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	files, err := crds.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var defined []apiextensionsv1.CustomResourceDefinition
	for _, f := range files {
		manifest, err := crds.Files.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(manifest, &crd); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), &crd); err != nil {
			t.Fatal(err)
		}
		defined = append(defined, crd)
	}
	for _, crd := range defined {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.ListKind})
		err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			return c.List(ctx, list) == nil, nil
		})
		if err != nil {
			t.Fatalf("%s is not served: %v", crd.Name, err)
		}
	}
}

// plainConfig is the hub's, by which custom resources come as JSON.
func plainConfig(s *apiserver.Server) *rest.Config {
	c := s.LoopbackConfig()
	c.ContentType, c.AcceptContentTypes = "", ""
	return c
}

func TestDirectReadsAreAsTheAPIs(t *testing.T) {
	t.Parallel()
	s := start(t, testOptions(t.TempDir()))
	createDefinitions(t, s)
	api, _ := newClients(t, s)
	watches := map[string][2]watch.Interface{}
	for name, k := range readDirectly {
		list := k.kind.NewList()
		byAPI, err := api.Watch(t.Context(), list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer byAPI.Stop()
		directly, err := k.of(s.DirectStores()).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		if err != nil {
			t.Fatal(err)
		}
		defer directly.Stop()
		watches[name] = [2]watch.Interface{byAPI, directly}
	}
	events := map[string]int{}
	for key, object := range storedObjects {
		for range 2 { // made, and changed
			if _, err := s.EtcdClient().Put(t.Context(), "/registry/"+key, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, k := range readDirectly {
		byAPI := k.kind.NewList()
		if err := api.List(t.Context(), byAPI); err != nil {
			t.Fatal(err)
		}
		directly, err := k.of(s.DirectStores()).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want, got := listItems(t, byAPI), listItems(t, directly)
		events[name] = 2 * len(want)
		if len(want) < 2 || len(got) != len(want) {
			t.Fatalf("%s: %d read directly, %d by the API", name, len(got), len(want))
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("%s: read directly\n%+v\nby the API\n%+v", name, got[i], want[i])
			}
		}
	}
	for key := range storedObjects {
		if _, err := s.EtcdClient().Delete(t.Context(), "/registry/"+key); err != nil {
			t.Fatal(err)
		}
	}
	for name, w := range watches {
		for range events[name] * 3 / 2 {
			want, got := nextChange(w[0]), nextChange(w[1])
			stripObject(want.Object)
			if got.Type != want.Type || !reflect.DeepEqual(got.Object, want.Object) {
				t.Errorf("%s: watched directly\n%s %+v\nby the API\n%s %+v", name, got.Type, got.Object, want.Type, want.Object)
			}
		}
	}
}

// nextChange returns the next event that is no bookmark. Either way of watching may send bookmarks.
func nextChange(w watch.Interface) watch.Event {
	for e := range w.ResultChan() {
		if e.Type != watch.Bookmark {
			return e
		}
	}
	return watch.Event{}
}

// listItems of a list, without the kind that the API says only in lists.
func listItems(t *testing.T, list runtime.Object) (out []runtime.Object) {
	t.Helper()
	v := reflect.ValueOf(list).Elem().FieldByName("Items")
	for i := range v.Len() {
		out = append(out, stripObject(v.Index(i).Addr().Interface().(runtime.Object)))
	}
	return out
}

func stripObject(o runtime.Object) runtime.Object {
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return o
}

// apiAlone feeds tables by the API alone.
type apiAlone struct{}

func (apiAlone) ListerWatcherFor(_ runtime.Object, api toolscache.ListerWatcher) toolscache.ListerWatcher {
	return api
}
func (apiAlone) RequestBundleProgress(context.Context) bool { return false }

// startState runs tables over a server, directly or by its API.
func startState(t testing.TB, s *apiserver.Server, directly bool) *state.HubTables {
	t.Helper()
	c, err := client.New(plainConfig(s), client.Options{Scheme: state.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	var source state.TableSource = apiAlone{}
	if directly {
		source = s.DirectStores()
	}
	st, err := state.New(s.DirectStores().WrapClient(c, allowAlways, nil), plainConfig(s), source, nil, make([]byte, 32), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- st.Run(ctx, ready) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case <-time.After(testwait.HangLimit):
		t.Fatal("the tables have no lists")
	}
	return st
}

func TestTablesAreFedDirectly(t *testing.T) {
	t.Parallel()
	s := start(t, testOptions(t.TempDir()))
	createDefinitions(t, s)
	byAPI, directly := startState(t, s, false), startState(t, s, true)
	for i := range 20 {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", i)}}
		if err := byAPI.Client.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.Status.Nodes.Total = int32(i)
		if err := byAPI.Client.Status().Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 {
			if err := byAPI.Client.Delete(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		slice := &enginev1.TargetSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d-0", i), Labels: map[string]string{enginev1.LabelBundle: fmt.Sprint("b", i)}},
			Spec:       enginev1.TargetSliceSpec{Bundle: enginev1.BundleRef{UID: fmt.Sprint("b", i), Name: "n"}},
		}
		if err := byAPI.Client.Create(t.Context(), slice); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		b := sampleBundle(fmt.Sprint("web-", i))
		b.Namespace = "default"
		if err := byAPI.Client.Create(t.Context(), b, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
	}
	if err := directly.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(directly.Bundles.List()); n != 5 {
		t.Errorf("a table that has caught up shows %d of 5 Bundles", n)
	}
	last := ""
	testwait.Until(t, "both tables show everything", func(context.Context) (bool, string) {
		a, b := byAPI.Clusters.List(), directly.Clusters.List()
		last = fmt.Sprintf("%d and %d clusters, slices up to %d and %d", len(a), len(b), byAPI.Rows.HighestResourceVersion(), directly.Rows.HighestResourceVersion())
		return len(a) == 15 && len(b) == 15 && reflect.DeepEqual(byAPI.Bundles.List(), directly.Bundles.List()) && byAPI.Rows.HighestResourceVersion() == directly.Rows.HighestResourceVersion() && slices.EqualFunc(a, b, func(a, b *v1alpha1.Cluster) bool {
			return reflect.DeepEqual(a, b) && a.Status.Nodes.Total > 0
		}), last
	})
}

// BenchmarkJoin makes a Cluster and writes its status until the table shows it: two
// writes and two events.
func BenchmarkJoin(b *testing.B) {
	for _, directly := range []bool{false, true} {
		b.Run(map[bool]string{false: "feed=api", true: "feed=direct"}[directly], func(b *testing.B) {
			s, err := apiserver.StartAPIServer(b.Context(), testOptions(b.TempDir()))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := stop(s); err != nil {
					b.Error(err)
				}
			})
			createDefinitions(b, s)
			benchmarkJoin(b, startState(b, s, directly))
		})
	}
}

func benchmarkJoin(b *testing.B, st *state.HubTables) {
	shown := make(chan string, 1)
	st.Clusters.Subscribe(func(name string) {
		if c, ok := st.Clusters.Get(name); ok && c.Status.Nodes.Total > 0 {
			shown <- name
		}
	})
	now, made := metav1.Now(), 0
	before := cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		made++
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("join-%d", made), Labels: map[string]string{"tier": "edge"}}}
		c.Spec.Accepted, c.Spec.Region = true, "eu-west"
		if err := st.Client.Create(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		c.Status.KubernetesVersion, c.Status.Nodes = "v1.36.3", v1alpha1.NodeSummary{Total: 3, Ready: 3, Summary: "3/3"}
		for _, kind := range []string{v1alpha1.ClusterAccepted, v1alpha1.ClusterJoined, v1alpha1.ClusterReady} {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "AgentConnected", LastTransitionTime: now})
		}
		if err := st.Client.Status().Update(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		if name := <-shown; name != c.Name {
			b.Fatalf("%s is shown, and %s was written", name, c.Name)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
}

// cpuTime that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
