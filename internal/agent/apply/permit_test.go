package apply

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/atoll"
)

// limit what may be applied, by the spec of a policy; empty: no limits.
func (w *world) limit(spec string) {
	w.t.Helper()
	var p *policy.Policy
	if spec != "" {
		text, err := yaml.YAMLToJSON([]byte("metadata: {name: agent, generation: 1}\nspec: " + spec))
		if err != nil {
			w.t.Fatal(err)
		}
		p = policy.Read(text)
	}
	w.policy.Store(p)
	w.Weigh()
}

func (w *world) configMap(name, value string) atoll.Rendered {
	return w.item("uid-"+name, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+"}\ndata: {a: "+value+"}")
}

// said of the item, in the status; false where nothing is.
func saidOf(s atoll.RowStatus, key atoll.ItemKey) (atoll.ItemStatus, bool) {
	for _, it := range s.Items {
		if it.Key == key {
			return it, true
		}
	}
	return atoll.ItemStatus{}, false
}

// denied waits until the item is refused with the words.
func (w *world) denied(bundle string, key atoll.ItemKey, words string) {
	w.t.Helper()
	w.status(bundle, func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, key)
		return ok && it.Error && it.Reason == ReasonPolicy && strings.Contains(it.Message, words)
	})
}

func TestWhatThePolicyForbidsIsNotAppliedAndTheRestIs(t *testing.T) {
	w := newWorld(t)
	w.limit(`{kinds: {denied: [{group: "", kinds: [Secret]}]}}`)
	secret := w.item("u2", "apiVersion: v1\nkind: Secret\nmetadata: {name: b}")
	a := w.configMap("a", "x")
	w.upsert(manifest("b1", 1, a, secret))
	w.exists(a.Key)
	w.denied("b1", secret.Key, "AgentPolicy agent (generation 1) does not allow kind Secret (spec.kinds.denied)")
	if w.get(secret.Key) != nil {
		t.Error("the Secret was made")
	}
	w.limit("") // acts at once, although the next try is later
	w.ready("b1", 1)
}

func TestWhatIsAppliedAndForbiddenNowStaysAsItIs(t *testing.T) {
	w := newWorld(t)
	a := w.configMap("a", "x")
	w.upsert(manifest("b1", 1, a))
	w.ready("b1", 1)
	w.limit("{namespaces: {denied: ['" + w.ns + "']}}")
	stays := func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, a.Key)
		return ok && s.State == atoll.RowReady && it.Health == atoll.Healthy && it.Reason == ReasonPolicy &&
			strings.HasPrefix(it.Message, "it stays as it is: AgentPolicy agent")
	}
	w.status("b1", stays)
	// An agent that starts anew says so too.
	w.stop()
	w.start()
	w.status("b1", stays)

	// What somebody changes is not corrected, and that is said as well.
	w.edit(a.Key, `{"data":{"a":"y"}}`)
	w.denied("b1", a.Key, "does not allow namespace")
	if got := w.get(a.Key).Object["data"].(map[string]any)["a"]; got != "y" {
		t.Errorf("it was corrected to %v", got)
	}
	w.limit("{}")
	w.eventually("the object is corrected", func() (bool, string) {
		got := w.get(a.Key).Object["data"].(map[string]any)["a"].(string)
		return got == "x", got
	})
	s := w.ready("b1", 1)
	if it, ok := saidOf(s, a.Key); ok {
		t.Errorf("something is still said of it: %+v", it)
	}

	// New content waits for the administrator, and what is there stays.
	w.limit("{namespaces: {denied: ['" + w.ns + "']}}")
	w.status("b1", stays)
	w.upsert(manifest("b1", 2, w.configMap("a", "z")))
	w.denied("b1", a.Key, "does not allow namespace")
	if got := w.get(a.Key).Object["data"].(map[string]any)["a"]; got != "x" {
		t.Errorf("it has %v", got)
	}
}

func TestWhatAtollAppliedGoesUnlessRemovalIsDenied(t *testing.T) {
	w := newWorld(t)
	a, b := w.configMap("a", "x"), w.configMap("b", "x")
	w.upsert(manifest("b1", 1, a, b))
	w.ready("b1", 1)
	w.limit("{namespaces: {denied: ['" + w.ns + "']}, removal: Deny}")
	m := manifest("b1", 2, a)
	m.Tombstones = []atoll.Tombstone{{Key: b.Key, UID: b.UID}}
	w.upsert(m)
	w.denied("b1", b.Key, "nor may it be removed (spec.removal)")
	w.holds("the object is there", 300*time.Millisecond, func() (bool, string) { return w.get(b.Key) != nil, "it is gone" })
	w.limit("{namespaces: {denied: ['" + w.ns + "']}}")
	w.absent(b.Key)
}

func TestANamespaceThatMayNotBeMadeIsTheReason(t *testing.T) {
	w := newWorld(t)
	w.limit("{clusterScoped: Deny}")
	a := w.configMap("a", "x")
	w.upsert(manifest("b1", 1, a))
	w.denied("b1", a.Key, "namespace "+w.ns+" is not there, and AgentPolicy agent (generation 1) does not allow objects outside of namespaces")
	w.limit("{clusterScoped: NamespacesOnly}")
	w.ready("b1", 1)
}

func TestLabelsOfANamespaceThatMayNotChangeAreSaid(t *testing.T) {
	w := newWorld(t)
	a := w.configMap("a", "x")
	labelled := func(generation int64, team string) atoll.Manifest {
		m := manifest("b1", generation, a)
		m.Namespaces = map[string]atoll.NamespaceMeta{w.ns: {Labels: map[string]string{"team": team}}}
		return m
	}
	w.upsert(labelled(1, "x"))
	w.ready("b1", 1)
	w.limit("{clusterScoped: Deny}")
	w.upsert(labelled(2, "y"))
	w.status("b1", func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, a.Key)
		return ok && s.State == atoll.RowReady && it.Reason == ReasonPolicy &&
			strings.HasPrefix(it.Message, "labels and annotations of namespace "+w.ns+" stay as they are: AgentPolicy agent")
	})
	ns := claims.Namespace(w.ns)
	if got := w.get(ns).GetLabels()["team"]; got != "x" {
		t.Errorf("the namespace is of team %s", got)
	}
	w.limit("{clusterScoped: NamespacesOnly}")
	w.eventually("the namespace is relabelled", func() (bool, string) {
		got := w.get(ns).GetLabels()["team"]
		return got == "y", got
	})
	w.status("b1", func(s atoll.RowStatus) bool {
		_, said := saidOf(s, a.Key)
		return s.State == atoll.RowReady && !said
	})
}

func TestNamespacesAreSelectedByLabelsOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	w.limit("{namespaces: {selector: {matchLabels: {hub: welcome}}}}")
	w.makeNamespace()
	a := w.configMap("a", "x")
	w.upsert(manifest("b1", 1, a))
	w.denied("b1", a.Key, "does not allow namespace "+w.ns)
	ns := atoll.ItemKey{Kind: "Namespace", Name: w.ns}
	w.edit(ns, `{"metadata":{"labels":{"hub":"welcome"}}}`)
	w.Relabelled(w.ns)
	w.ready("b1", 1)
	w.edit(ns, `{"metadata":{"labels":{"hub":null}}}`)
	w.Relabelled(w.ns) // what is there stays, and is said to
	w.status("b1", func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, a.Key)
		return ok && !it.Error && it.Reason == ReasonPolicy
	})
	w.edit(ns, `{"metadata":{"labels":{"hub":"welcome"}}}`)
	w.Relabelled(w.ns)
	w.status("b1", func(s atoll.RowStatus) bool { _, said := saidOf(s, a.Key); return !said })
	w.edit(ns, `{"metadata":{"labels":{"`+atoll.LabelBundleUID+`":"b9"}}}`)
	w.upsert(manifest("b1", 2, w.configMap("a", "y")))
	w.denied("b1", a.Key, "does not allow namespace "+w.ns)
}

// TestWritesAreMadeInTheNameOfTheServiceAccount: its rights count, and the refusal says
// which are missing.
func TestWritesAreMadeInTheNameOfTheServiceAccount(t *testing.T) {
	w := newWorld(t)
	w.makeNamespace()
	w.limit("{serviceAccounts: [{namespaces: ['" + w.ns + "'], name: deployer}]}")
	a := w.configMap("a", "x")
	w.upsert(manifest("b1", 1, a))
	w.status("b1", func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, a.Key)
		return ok && it.Error && it.Reason == ReasonForbidden &&
			strings.HasPrefix(it.Message, "this cluster's RBAC forbids ServiceAccount "+w.ns+"/deployer, as which the agent writes there, to patch configmaps") &&
			strings.Contains(it.Message, "{apiGroups: [\"\"], resources: [configmaps]")
	})
	w.make("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: deployer}\nrules:\n- {apiGroups: [\"\"], resources: [configmaps], verbs: [create, patch, delete]}")
	w.make("apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: deployer}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}\nsubjects:\n- {kind: ServiceAccount, name: deployer, namespace: " + w.ns + "}")
	w.ready("b1", 1)
	m := manifest("b1", 2)
	m.Tombstones = []atoll.Tombstone{{Key: a.Key, UID: a.UID}}
	w.upsert(m)
	w.absent(a.Key)
}

func TestWhatLimitsTheAgentIsNoHubs(t *testing.T) {
	w := newWorld(t)
	own := w.item("u1", "apiVersion: v1\nkind: Secret\nmetadata: {name: x, namespace: atoll-system}")
	w.upsert(manifest("b1", 1, own))
	w.denied("b1", own.Key, "the agent's own")
}
