package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/testwait"
)

// observedTemplates are what the hub would have in both members.
const observedTemplates = `
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: $NS}
data: {added: "new", colour: blue, same: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: watched, namespace: $NS}
data: {colour: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: $NS, annotations: {atoll.dev/drift: Report}}
data: {password: b3Vycy1vZi10aGUtaHVi}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS, labels: {team: hub}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: "registry.example/web:2"}]}
`

// ownersManifest is what the other owner has there instead.
const ownersManifest = `
apiVersion: v1
kind: Namespace
metadata: {name: $NS}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: $NS, labels: {app.kubernetes.io/instance: shop}}
data: {colour: red, same: "1", more: theirs}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: watched, namespace: $NS}
data: {colour: red}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: $NS}
data: {password: dGhlaXJzLW9mLXRoZS1tZW1iZXI=}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS, labels: {team: shop}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: "registry.example/web:1"}]}
`

const observingPolicy = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: beside, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: Secret, name: key}, {apiVersion: apps/v1, kind: Deployment}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
  itemRules:
  - {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: watched}], update: ReadOnly}
  - {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: apps/v1, kind: Deployment}], drift: Report}
`

// driftAtFirst is what atoll drift prints, without ages.
const driftAtFirst = `ConfigMap $NS/conf
  member1: 2 differences
    /data/added: none -> "new"
    /data/colour: "red" -> "blue" (argocd-controller)
  member2: missing
Secret $NS/key
  member1: 1 difference
    /data/password: (not shown) (argocd-controller)
  member2: missing
Deployment.apps $NS/web
  member1: 3 differences
    /metadata/labels/team: "shop" -> "hub" (argocd-controller)
    /spec/replicas: 2 -> 3 (argocd-controller)
    /spec/template/spec/containers/name=web/image: "registry.example/web:1" -> "registry.example/web:2" (argocd-controller)
  member2: missing

exit status 2`

// secretValues of both manifests, plain and as base64 without its last characters.
var secretValues = []string{"ours-of-the-hub", "b3Vycy1vZi10aGUtaHVi", "theirs-of-the-member", "dGhlaXJzLW9mLXRoZS1tZW1iZX"}

// otherOwner has objects in a member as Argo CD with self-heal has them. It applies its manifest
// server-side, and each object again after every change that it sees.
type otherOwner struct {
	member string
	client client.WithWatch

	mu       sync.Mutex
	manifest map[string]*unstructured.Unstructured
	// written are the resource versions after its own applies.
	written map[string]bool
	seen    []*unstructured.Unstructured
	errs    []error
}

const ownersManager = "argocd-controller"

// startOwner starts an owner without a manifest, which sees every version of the namespace's objects.
func startOwner(t *testing.T, member, ns string) *otherOwner {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath(member))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := &otherOwner{member: member, client: c, manifest: map[string]*unstructured.Unstructured{}, written: map[string]bool{}}
	for _, kind := range []string{"v1 ConfigMapList", "v1 SecretList", "apps/v1 DeploymentList"} {
		var list unstructured.UnstructuredList
		apiVersion, kind, _ := strings.Cut(kind, " ")
		list.SetAPIVersion(apiVersion)
		list.SetKind(kind)
		events, err := c.Watch(t.Context(), &list, client.InNamespace(ns))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(events.Stop)
		go o.followEvents(t.Context(), events)
	}
	kubectlAtEnd(t, member, "delete namespace "+ns+" --wait=false")
	return o
}

func ownersKey(o *unstructured.Unstructured) string { return o.GetKind() + " " + o.GetName() }

// setManifest applies a manifest, which is the owner's from now on.
func (o *otherOwner) setManifest(t *testing.T, ns, text string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range decodeObjects(t, ns, text) {
		o.manifest[ownersKey(one)] = one
		if err := o.applyOne(t.Context(), one); err != nil {
			t.Fatalf("%s: %s applies %s: %v", o.member, ownersManager, ownersKey(one), err)
		}
	}
}

// applyOne applies an object of the manifest. The caller holds mu.
func (o *otherOwner) applyOne(ctx context.Context, one *unstructured.Unstructured) error {
	after := one.DeepCopy()
	err := o.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), client.FieldOwner(ownersManager), client.ForceOwnership)
	if err == nil {
		o.written[after.GetResourceVersion()] = true
	}
	return err
}

func (o *otherOwner) followEvents(ctx context.Context, events watch.Interface) {
	for event := range events.ResultChan() {
		live, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		o.mu.Lock()
		if one := o.manifest[ownersKey(live)]; one != nil && ctx.Err() == nil {
			o.seen = append(o.seen, live)
			if err := o.applyOne(ctx, one); err != nil && ctx.Err() == nil {
				o.errs = append(o.errs, err)
			}
		}
		o.mu.Unlock()
	}
}

// checkAlone checks that no version of an object was Atoll's. ConfigMaps and Secrets have no other
// writers than the owner. Controllers of the member write the status of Deployments.
func (o *otherOwner) checkAlone(t *testing.T, ns string) {
	t.Helper()
	testwait.UntilNil(t, "the latest versions are seen in "+o.member, o.hasSeenAll)
	namespace, err := get(t.Context(), o.member, "v1", "Namespace", "", ns)
	if err != nil || namespace == nil {
		t.Fatalf("%s has no namespace %s: %v", o.member, ns, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := errors.Join(o.errs...); err != nil {
		t.Errorf("%s: %v", o.member, err)
	}
	for _, live := range append(slices.Clone(o.seen), namespace) {
		if err := o.checkVersion(live); err != nil {
			t.Errorf("%s: %s at version %s: %v", o.member, ownersKey(live), live.GetResourceVersion(), err)
		}
	}
}

// hasSeenAll checks that the watches have caught up with the owner.
func (o *otherOwner) hasSeenAll(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, one := range o.manifest {
		if one.GetKind() == "Namespace" {
			continue
		}
		live, err := get(ctx, o.member, one.GetAPIVersion(), one.GetKind(), one.GetNamespace(), one.GetName())
		if err != nil || live == nil {
			return fmt.Errorf("no %s: %w", key, err)
		}
		if !slices.ContainsFunc(o.seen, func(s *unstructured.Unstructured) bool {
			return s.GetUID() == live.GetUID() && s.GetResourceVersion() == live.GetResourceVersion()
		}) {
			return fmt.Errorf("%s is at version %s", key, live.GetResourceVersion())
		}
	}
	return nil
}

func (o *otherOwner) checkVersion(live *unstructured.Unstructured) error {
	if kind := live.GetKind(); (kind == "ConfigMap" || kind == "Secret") && !o.written[live.GetResourceVersion()] {
		return errors.New("another client wrote it")
	}
	for _, f := range live.GetManagedFields() {
		if f.Manager == atoll.FieldManager || f.Manager == atoll.HandoverManager {
			return fmt.Errorf("%s wrote it", f.Manager)
		}
	}
	for _, names := range []map[string]string{live.GetLabels(), live.GetAnnotations()} {
		for name := range names {
			if strings.HasPrefix(name, "atoll.dev/") {
				return errors.New("it has " + name)
			}
		}
	}
	return nil
}

var driftAge = regexp.MustCompile(`, for \d+[smh]\d*[smh]?`)

// driftIs returns a check that atoll drift prints exactly this, but for the ages.
func driftIs(t *testing.T, args, want string) func(context.Context) error {
	return func(context.Context) error {
		if out := driftAge.ReplaceAllString(runCLI(t, append([]string{"drift"}, strings.Fields(args)...)...), ""); out != want {
			return fmt.Errorf("atoll drift %s prints\n%s\nwant\n%s", args, out, want)
		}
		return nil
	}
}

// runAs runs the CLI against the hub as another user.
func runAs(t *testing.T, user string, args ...string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate, info.ImpersonateGroups = user, []string{"system:authenticated"}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return binaryOutput(t, "", "atoll", append(args, "--kubeconfig", file)...)
}

// checkDriftAsJSON checks a part of what the text shows too, and that no value of a Secret is in it.
func checkDriftAsJSON(t *testing.T, ns string) {
	t.Helper()
	out := runCLI(t, "drift", "-n", ns, "-o", "json")
	text, ended := strings.CutSuffix(out, "\nexit status 2")
	var found preview.Drifts
	if err := json.Unmarshal([]byte(text), &found); err != nil || !ended || len(found.Objects) != 6 {
		t.Fatalf("the drift as JSON: %v:\n%s", err, out)
	}
	in1, in2 := found.Objects[0], found.Objects[1]
	if in1.Name != "conf" || in1.Cluster != "member1" || in1.Missing || in1.Bundle == "" || in1.DifferentFields != 2 || len(in1.Fields) != 2 {
		t.Errorf("the ConfigMap in member1: %+v", in1)
	} else if f := in1.Fields[1]; f.Path != "/data/colour" || f.Live != `"red"` || f.Wanted != `"blue"` || !slices.Equal(f.Managers, []string{ownersManager}) || f.Since == nil {
		t.Errorf("its colour: %+v", f)
	}
	if in2.Name != "conf" || in2.Cluster != "member2" || !in2.Missing || in2.MissingSince == nil || len(in2.Fields) != 0 {
		t.Errorf("the ConfigMap in member2: %+v", in2)
	}
	for what, shown := range map[string]string{
		"JSON": out, "text": runCLI(t, "drift", "-n", ns), "the explanation": runCLI(t, "explain", "secret/key", "-n", ns),
		"an Event": mustKubectl(t, "", "get events -o yaml -n "+ns), "a Bundle": mustKubectl(t, "", "get bundles -o yaml -n "+ns),
	} {
		for _, value := range secretValues {
			if strings.Contains(shown, value) {
				t.Errorf("%s shows %s of a Secret:\n%s", what, value, shown)
			}
		}
	}
}

// checkReports checks what the hub says of the drift at first in other ways than atoll drift for the namespace.
func checkReports(t *testing.T, ns string) {
	t.Helper()
	checkDriftAsJSON(t, ns)
	testwait.UntilNil(t, "one object", driftIs(t, "cm/conf -n "+ns+" --cluster member2", "ConfigMap "+ns+"/conf\n  member2: missing\n\nexit status 2"))
	testwait.UntilNil(t, "Events on the templates", allChecks(
		eventOf(ns, "ConfigMap", "conf", "Drifted"), eventOf(ns, "ConfigMap", "conf", "Missing"), eventOf(ns, "Deployment", "web", "Drifted"),
		eventOf(ns, "Secret", "key", "Drifted"), eventOf(ns, "ConfigMap", "watched", "Missing"),
	))
	testwait.UntilNil(t, "explained", allChecks(
		explanationMatches("cm/conf -n "+ns, `drift: Report`, `^ +member1 .* Ready +\w+\n +- this: Drifted: 2 fields differ: /data/added, /data/colour$`,
			`^ +member2 .* Progressing +\w+\n +- Missing: .*; to act: the application's owner$`),
		explanationMatches("cm/watched -n "+ns, `update: ReadOnly`, `^ +member1 .* Ready +\w+$`, `^ +- Missing: `),
	))
	if err := eventOf(ns, "ConfigMap", "watched", "Drifted")(t.Context()); err == nil {
		t.Error("an object whose health alone is reported has an Event of drift")
	}
	if out := runAs(t, "stranger-"+ns, "drift", "-n", ns); !strings.Contains(out, "orbidden") || !strings.Contains(out, "exit status 1") || strings.Contains(out, "colour") {
		t.Errorf("a user without rights gets:\n%s", out)
	}
}

// An operator's day with Atoll in Report beside another owner. Clusters report where the owner's objects
// differ from the templates, and write nothing of them.
func TestObjectsBesideAnotherOwner(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "beside")
	first, second := startOwner(t, "member1", ns), startOwner(t, "member2", ns)
	first.setManifest(t, ns, ownersManifest)
	uids := func() (all []string) {
		for _, kind := range []string{"v1 Namespace " + ns, "v1 ConfigMap conf", "v1 ConfigMap watched", "v1 Secret key", "apps/v1 Deployment web"} {
			f := strings.Fields(kind)
			all = append(all, uidIn(t, "member1", f[0], f[1], ns, f[2]))
		}
		return all
	}
	before := uids()
	apply(t, ns, observedTemplates)

	policy := strings.ReplaceAll(observingPolicy, "$NS", ns)
	previews := []string{"Deployment/web would not be written, and differences would be reported", "ConfigMap/watched would not be written, and its health would be reported"}
	expectOutput(t, "the plan of the policy", runCLI(t, "plan", "-f", writeManifest(t, "policy.yaml", ns, policy)), previews...)
	expectOutput(t, "a dry run of the policy", mustKubectl(t, policy, "apply --dry-run=server -f -"), "would not be written")
	mustKubectl(t, policy, "apply -f -")

	testwait.UntilNil(t, "all drift is listed", driftIs(t, "-n "+ns, strings.ReplaceAll(driftAtFirst, "$NS", ns)))
	checkReports(t, ns)

	// Edits on the hub and in the member change the report alone.
	ofConf := func(live, wanted string) string {
		return fmt.Sprintf("ConfigMap %s/conf\n  member1: 2 differences\n    /data/added: none -> \"new\"\n    /data/colour: %q -> %q (argocd-controller)\n\nexit status 2", ns, live, wanted)
	}
	in1 := "cm/conf --cluster member1 -n " + ns
	mustKubectl(t, "", "patch cm conf -n "+ns+` --type=merge -p={"data":{"colour":"violet"}}`)
	testwait.UntilNil(t, "an edit on the hub", driftIs(t, in1, ofConf("red", "violet")))
	first.setManifest(t, ns, strings.ReplaceAll(ownersManifest, "colour: red", "colour: green"))
	testwait.UntilNil(t, "an edit in the member", driftIs(t, in1, ofConf("green", "violet")))

	// The owner takes the hub's values over, in one member after the other.
	mustKubectl(t, "", "patch cm conf -n "+ns+` --type=merge -p={"data":{"colour":"blue"}}`)
	agreed := "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}\n---" + strings.Replace(observedTemplates, ", annotations: {atoll.dev/drift: Report}", "", 1)
	first.setManifest(t, ns, agreed)
	testwait.UntilNil(t, "no drift in member1", driftIs(t, "--cluster member1 -n "+ns, "no drift\n"))
	missing := ""
	for _, object := range []string{"ConfigMap $NS/conf", "Secret $NS/key", "Deployment.apps $NS/web"} {
		missing += strings.ReplaceAll(object, "$NS", ns) + "\n  member2: missing\n"
	}
	testwait.UntilNil(t, "the objects that member2 does not have", driftIs(t, "-n "+ns, missing+"\nexit status 2"))
	if err := inCluster("member2", "v1", "Namespace", "", ns, false)(t.Context()); err != nil {
		t.Errorf("a member made a namespace for what it observes: %v", err)
	}
	second.setManifest(t, ns, agreed)
	testwait.UntilNil(t, "no drift", driftIs(t, "-n "+ns, "no drift\n"))
	testwait.UntilNil(t, "ready, with the status of the owners' objects", allChecks(
		explanationMatches("cm/conf -n "+ns, "ready in all of them", "drift: Report"), fieldIs("hub", ns, "web", "status.readyReplicas", 3),
	))

	// Without a policy the Bundle stays as it is, and without templates it goes.
	unchanged := func(context.Context) error {
		if after := uids(); !slices.Equal(after, before) {
			return fmt.Errorf("UIDs %v, before %v", after, before)
		}
		return nil
	}
	mustKubectl(t, "", "delete ppol beside -n "+ns)
	staysTrue(t, "the owner's objects stay without the policy", unchanged)
	mustKubectl(t, "", "delete -n "+ns+" cm/conf cm/watched secret/key deploy/web")
	testwait.UntilNil(t, "no row is left", rowsAre(ns, ""))
	staysTrue(t, "the owner's objects stay without the templates", unchanged)
	testwait.UntilNil(t, "no drift is left", driftIs(t, "-n "+ns, "no drift\n"))
	first.checkAlone(t, ns)
	second.checkAlone(t, ns)
}
