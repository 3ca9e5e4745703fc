package limits

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/agent/v1alpha1"
	"atoll.dev/atoll/internal/agent/agenttest"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

func TestMain(m *testing.M) { os.Exit(agenttest.RunTestsWithMember(m)) }

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	policies    = v1alpha1.GroupVersion.WithResource(v1alpha1.AgentPolicyResource)
)

// world is Limits of the shared member, which a test's administrator changes.
type world struct {
	t *testing.T
	*AgentPolicyFollower
	client *member.Client

	mu sync.Mutex
	// forbidden is a verb that the agent may not.
	forbidden string
	asked     int      // requests of the agent for policies
	reported  []string // namespaces with changed labels, as reported
}

// RoundTrip refuses what is forbidden, as RBAC does.
func (w *world) wrapTransport(next http.RoundTripper) http.RoundTripper {
	return round(func(r *http.Request) (*http.Response, error) {
		if !strings.Contains(r.URL.Path, v1alpha1.AgentPolicyResource) || r.Header.Get("User-Agent") != "agent" {
			return next.RoundTrip(r)
		}
		verb := "get"
		if r.URL.Query().Get("watch") != "" {
			verb = "watch"
		}
		w.mu.Lock()
		w.asked++
		forbidden := w.forbidden == verb
		w.mu.Unlock()
		if !forbidden {
			return next.RoundTrip(r)
		}
		body, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403})
		return &http.Response{StatusCode: 403, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: closer{strings.NewReader(string(body))}}, err
	})
}

type round func(*http.Request) (*http.Response, error)

func (f round) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type closer struct{ *strings.Reader }

func (closer) Close() error { return nil }

func newWorld(t *testing.T) *world {
	t.Helper()
	agenttest.SkipIfShort(t)
	w := &world{t: t}
	config := agenttest.StartedMemberConfig()
	config.UserAgent = "agent"
	config.Wrap(w.wrapTransport)
	client, err := member.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if w.client, err = member.New(agenttest.StartedMemberConfig()); err != nil {
		t.Fatal(err)
	}
	w.AgentPolicyFollower = New(Options{Client: client, Changed: func() {}, Log: slog.New(slog.DiscardHandler), Relabelled: func(ns string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reported = append(w.reported, ns)
	}})
	w.refreshDiscovery()
	return w
}

// refreshDiscovery as the inventory does when definitions change.
func (w *world) refreshDiscovery() {
	w.t.Helper()
	changed, err := w.o.Client.DiscoverAPIs(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if changed {
		w.APIsChanged()
	}
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

// createDefinition the kind in the member, as the agent's manifest does, while the test runs.
func (w *world) createDefinition() {
	w.t.Helper()
	text, err := os.ReadFile("../../../deploy/charts/atoll-agent/files/agent.atoll.dev_agentpolicies.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		w.t.Fatal(err)
	}
	at := w.client.DynamicClient().Resource(definitions)
	if _, err := at.Create(w.t.Context(), crd, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.deleteDefinition() })
	w.waitUntil("the kind is served", func() bool {
		w.refreshDiscovery()
		_, served := w.policyResource()
		return served
	})
}

func (w *world) deleteDefinition() {
	w.t.Helper()
	at, ctx := w.client.DynamicClient().Resource(definitions), context.WithoutCancel(w.t.Context())
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := at.Delete(ctx, "agentpolicies.agent.atoll.dev", metav1.DeleteOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		w.t.Error(err)
	}
}

// createPolicy by the spec of a policy; the error is the API's.
func (w *world) createPolicy(name, spec string) error {
	w.t.Helper()
	text, err := yaml.YAMLToJSON([]byte("apiVersion: agent.atoll.dev/v1alpha1\nkind: AgentPolicy\nmetadata: {name: " + name + "}\nspec: " + spec))
	if err != nil {
		w.t.Fatal(err)
	}
	yes := true
	_, err = w.client.DynamicClient().Resource(policies).Patch(w.t.Context(), name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "admin", Force: &yes, FieldValidation: "Strict"})
	return err
}

func (w *world) forbidVerb(verb string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forbidden = verb
}

func (w *world) waitUntil(what string, done func() bool) {
	w.t.Helper()
	testwait.Until(w.t, what, func(context.Context) (bool, string) { return done(), fmt.Sprint("the policy is ", w.CurrentPolicy()) })
}

// isAllowed reports whether a ConfigMap may be applied in the namespace shop.
func (w *world) isAllowed() bool {
	return w.CurrentPolicy().ApplyRefusal(atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, policy.Namespace{}) == ""
}

const notShop = "{namespaces: {denied: [shop]}}"

func TestAPolicyIsFollowed(t *testing.T) {
	w := newWorld(t)
	if w.isAllowed() {
		t.Fatal("something is allowed before anything was read")
	}
	if err := w.Read(t.Context()); err != nil || w.CurrentPolicy() != nil {
		t.Fatalf("a member that does not serve the kind has the policy %s, %v", w.CurrentPolicy(), err)
	}
	w.run()
	w.mu.Lock()
	if w.asked > 0 {
		t.Errorf("%d requests for policies to a member that does not serve them", w.asked)
	}
	w.mu.Unlock()
	w.createDefinition()
	if err := w.createPolicy("agent", notShop); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("it is forbidden", func() bool { return !w.isAllowed() })

	// One that begins now knows it before it does anything.
	late := New(Options{Client: w.o.Client, Changed: func() {}, Relabelled: func(string) {}, Log: w.o.Log})
	if err := late.Read(t.Context()); err != nil || !strings.HasPrefix(late.CurrentPolicy().String(), "AgentPolicy agent (generation 1)") {
		t.Errorf("at its start an agent has the policy %s, %v", late.CurrentPolicy(), err)
	}

	if err := w.client.DynamicClient().Resource(policies).Delete(t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("it is allowed", w.isAllowed)
	if err := w.createPolicy("agent", notShop); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("it is forbidden again", func() bool { return !w.isAllowed() })
	w.deleteDefinition()
	w.waitUntil("the kind is gone", func() bool { w.refreshDiscovery(); return w.isAllowed() })
}

// TestAPolicyThatMayNotBeReadForbidsEverything: also where it may be read once and not
// followed.
func TestAPolicyThatMayNotBeReadForbidsEverything(t *testing.T) {
	w := newWorld(t)
	w.createDefinition()
	w.forbidVerb("get")
	if err := w.Read(t.Context()); err != nil || w.isAllowed() || !strings.Contains(w.CurrentPolicy().String(), "may not get, list and watch agentpolicies.agent.atoll.dev") {
		t.Fatalf("%v; the policy is %s", err, w.CurrentPolicy())
	}
	w.forbidVerb("")
	if err := w.Read(t.Context()); err != nil || !w.isAllowed() {
		t.Fatalf("%v; the policy is %s", err, w.CurrentPolicy())
	}
	w.forbidVerb("watch")
	w.run()
	w.waitUntil("it is forbidden", func() bool { return !w.isAllowed() })
	w.forbidVerb("")
	w.waitUntil("it is allowed", w.isAllowed)
}

// TestLabelsOfNamespacesAreFollowedWhileTheyCount: by a watch, with one report for a change.
// Nothing is reported or requested where the policy selects by no labels.
func TestLabelsOfNamespacesAreFollowedWhileTheyCount(t *testing.T) {
	w := newWorld(t)
	w.createDefinition()
	if err := w.createPolicy("agent", notShop); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.waitUntil("it is forbidden", func() bool { return !w.isAllowed() })
	at := w.client.DynamicClient().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	name := "labelled"
	label := func(value string) {
		t.Helper()
		body := `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "` + name + `", "labels": {"hub": "` + value + `"}}}`
		if _, err := at.Patch(t.Context(), name, types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: "admin"}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, ns := range w.reported {
			if ns == name {
				n++
			}
		}
		return n
	}
	tells := func(what string, want int) {
		t.Helper()
		w.waitUntil(what, func() bool { return count() >= want })
		if n := count(); n != want {
			t.Errorf("%s: it was called %d times, wanted %d", what, n, want)
		}
	}
	label("stranger")
	if err := w.createPolicy("agent", "{namespaces: {selector: {matchLabels: {hub: welcome}}}}"); err != nil {
		t.Fatal(err)
	}
	tells("as it is when the policy begins to select", 1)
	label("welcome")
	tells("relabelled", 2)
	if _, err := at.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata": {"annotations": {"a": "b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	label("stranger")
	tells("annotated, and relabelled", 3)
	if err := w.createPolicy("agent", notShop); err != nil {
		t.Fatal(err)
	}
	w.waitUntil("nothing is selected", func() bool { return !w.CurrentPolicy().SelectsByNamespaceLabels() })
	label("welcome")
	if err := w.createPolicy("agent", "{namespaces: {selector: {matchLabels: {hub: welcome}}}}"); err != nil {
		t.Fatal(err)
	}
	tells("as it is when the policy selects again", 4)
}

func TestTheDefinitionRefusesWhatMeansNothing(t *testing.T) {
	w := newWorld(t)
	w.createDefinition()
	for spec, want := range map[string]string{
		"{what: 1}":                      "field not declared in schema",
		"{namespaces: {allowed: []}}":    "should have at least 1 items",
		"{clusterScoped: Perhaps}":       "Unsupported value",
		"{serviceAccounts: [{name: a}]}": "Required value",
	} {
		if err := w.createPolicy("agent", spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	if err := w.createPolicy("another", "{}"); err == nil || !strings.Contains(err.Error(), "its name is agent") {
		t.Errorf("another: %v", err)
	}
}
