package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

// runExplain runs `atoll explain` as the hub's administrator.
func runExplain(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out, errs strings.Builder
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(lab.BinDirVariable), "atoll"),
		append([]string{"explain", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// explanationMatches returns a check that the explanation matches the expressions, line by line.
func explanationMatches(args string, patterns ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		text, errs, err := runExplain(ctx, strings.Fields(args)...)
		if err != nil {
			return fmt.Errorf("explain %s: %w: %s", args, err, errs)
		}
		for _, p := range patterns {
			if !regexp.MustCompile("(?m)" + p).MatchString(text) {
				return fmt.Errorf("explain %s does not match %q:\n%s", args, p, text)
			}
		}
		return nil
	}
}

const secretOfWeb = `
---
apiVersion: v1
kind: Secret
metadata: {name: db, namespace: $NS}
stringData: {password: hunter22}
`

func TestExplainAPlacedDeployment(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "explained")
	apply(t, ns, everywherePolicy+"---\n"+strings.Replace(webDeployment, "[{configMapRef: {name: web}}]", "[{secretRef: {name: db}}]", 1)+secretOfWeb+`---
apiVersion: atoll.dev/v1alpha1
kind: OverridePolicy
metadata: {name: us, namespace: $NS}
spec:
  overrideRules:
  - targetCluster: {clusterNames: [member3]}
    overriders: {labelsOverrider: [{operator: add, value: {in: ap}}]}
  - targetCluster: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [us]}]}}
    overriders: {imageOverrider: [{component: Registry, operator: replace, value: us.example}]}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: zz-wide, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
`)
	testwait.UntilNil(t, "the whole story", explanationMatches("deploy/web -n "+ns,
		`^Deployment/web in namespace explained is in 3 clusters and ready in all of them`,
		`^Placed by PropagationPolicy web \(by name\)`,
		`Also selected by PropagationPolicy zz-wide \(by kind\), which lost: the winner is ahead by specificity`,
		`^ +member1 +fits +Active +\d+ +Ready`,
		`/spec/template/spec/containers/0/image = "us.example/web:1" by OverridePolicy/explained/us rule 1 imageOverrider\[0\], in member2$`,
		`/metadata/labels/in = "ap" by OverridePolicy/explained/us rule 0 labelsOverrider\[0\], in member3$`,
	))
	// Every way of naming it.
	for _, args := range []string{"deployment web", "deployments.apps/web", "deployments web", "bundle/web", "propagationpolicy/web"} {
		if err := explanationMatches(args+" -n "+ns, "is in 3 clusters")(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := explanationMatches("deploy/web --cluster member2 -o yaml -n "+ns, "rule: 1", "value: us.example/web:1", "verdict: Placed")(t.Context()); err != nil {
		t.Error(err)
	}
	dependencyIsExplainedWithoutItsValue(t, ns)
	strangersLearnNothing(t, ns)
}

func dependencyIsExplainedWithoutItsValue(t *testing.T, ns string) {
	t.Helper()
	for _, format := range []string{"json", "yaml", ""} {
		args := []string{"secret/db", "-n", ns}
		if format != "" {
			args = append(args, "-o", format)
		}
		text, errs, err := runExplain(t.Context(), args...)
		if err != nil || !strings.Contains(text, "dependency") {
			t.Errorf("explain secret/db: %v: %s%s", err, text, errs)
		}
		for _, secret := range []string{"hunter22", "aHVudGVyMjI"} {
			if strings.Contains(text, secret) {
				t.Errorf("the explanation of a Secret tells its value: %s", text)
			}
		}
	}
}

// strangersLearnNothing: a user that may get Deployments and Bundles, and no Secrets, sees
// no Secret, and gets the same answer for an existing one and a missing one.
func strangersLearnNothing(t *testing.T, ns string) {
	t.Helper()
	apply(t, ns, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: developer, namespace: $NS}
rules:
- {apiGroups: [apps, atoll.dev], resources: ["*"], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: developer, namespace: $NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: developer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: dora}]
`)
	ask := asUser(t, "dora")
	var text string
	testwait.UntilNil(t, "the developer's view", func(ctx context.Context) error {
		code := 0
		if code, text = ask(ctx, "group=apps&kind=Deployment&name=web&namespace="+ns); code != 200 {
			return fmt.Errorf("the hub answers %d: %s", code, text)
		}
		return nil
	})
	if strings.Contains(text, `"db"`) || strings.Contains(text, "Secret") || strings.Contains(text, "hunter22") {
		t.Errorf("a user without the right to get Secrets sees one: %s", text)
	}
	_, bundle := ask(t.Context(), "group=atoll.dev&kind=Bundle&name=web&namespace="+ns)
	if !strings.Contains(bundle, `"items":1`) || strings.Contains(bundle, "Secret") {
		t.Errorf("the Bundle tells of a Secret: %s", bundle)
	}
	there, one := ask(t.Context(), "kind=Secret&name=db&namespace="+ns)
	absent, other := ask(t.Context(), "kind=Secret&name=no&namespace="+ns)
	if there != 403 || absent != 403 || strings.ReplaceAll(one, `"db\`, `"no\`) != other && strings.ReplaceAll(one, "db", "no") != other {
		t.Errorf("an existing Secret (%d %s) and a missing one (%d %s) get different answers", there, one, absent, other)
	}
	if code, text := ask(t.Context(), "kind=Secret&resource=deployments&name=db&namespace="+ns); code != 400 {
		t.Errorf("an unknown parameter was accepted: %d %s", code, text)
	}
}

// asUser returns a function that requests an explanation from the hub as another user.
func asUser(t *testing.T, user string) func(ctx context.Context, query string) (code int, answer string) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, query string) (int, string) {
		code := 0
		result := kube.CoreV1().RESTClient().Get().RequestURI(atoll.ExplainPath + "?" + query).Do(ctx).StatusCode(&code)
		raw, err := result.Raw()
		if len(raw) == 0 && err != nil {
			return code, err.Error()
		}
		return code, string(raw)
	}
}

// The explanation would list clusters of other tests besides the members, so this test runs
// alone.
func TestExplainWhyNotThere(t *testing.T) {
	ns := createNamespace(t, "unfit")
	apply(t, ns, `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: eu, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: eu}]
  placement:
    clusterAffinity:
      labelSelector: {matchLabels: {none-has: this}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: eu, namespace: $NS}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: lonely, namespace: $NS}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: named, namespace: $NS, annotations: {atoll.dev/clusters: "member1"}}
`)
	testwait.UntilNil(t, "no cluster fits", explanationMatches("cm/eu -n "+ns,
		`^ConfigMap/eu in namespace unfit is in no cluster: none fits its placement`,
		`^ +member1, member2, member3: labels do not match "none-has=this" \[labelSelector\]$`,
	))
	testwait.UntilNil(t, "no policy places it", explanationMatches("cm/lonely -n "+ns,
		`^ConfigMap/lonely in namespace unfit is in no cluster: no policy and no annotation selects it`,
		`kubectl annotate configmap/lonely -n unfit atoll.dev/clusters=`,
	))
	testwait.UntilNil(t, "named by an annotation", explanationMatches("cm/named -n "+ns,
		`is in 1 cluster and ready there`, `^Placed by its own annotation`, `^ +member2, member3: not named in clusterNames`,
	))
	if _, errs, err := runExplain(t.Context(), "cm/none", "-n", ns); err == nil || !strings.Contains(errs, `the hub has no cm/none in namespace "unfit"`) {
		t.Errorf("what is not there: %v: %s", err, errs)
	}
}

func TestExplainANamespacesScope(t *testing.T) {
	t.Parallel()
	ns := "scoped"
	apply(t, ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS, annotations: {atoll.dev/clusters: \"member1\"}}")
	apply(t, ns, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: $NS}")
	testwait.UntilNil(t, "what the annotation places and leaves out", explanationMatches("namespace/"+ns,
		`^What the annotation of Namespace/scoped places is in 1 cluster`,
		`^Left out by the annotation of namespace scoped \(atoll.dev/clusters: "member1"\):$`,
		`^ +ConfigMap/kube-root-ca.crt: made by the hub in every namespace$`,
		`^ +ServiceAccount/default: made by the hub in every namespace$`,
	))
	testwait.UntilNil(t, "one that is left out", explanationMatches("cm/kube-root-ca.crt -n "+ns,
		`is in no cluster: the annotation of its namespace leaves it out \(made by the hub in every namespace\)`))
	testwait.UntilNil(t, "one that is placed", explanationMatches("cm/mine -n "+ns,
		`^Placed by the annotation of namespace scoped`, "`atoll explain namespace/scoped` lists them"))
}

func TestExplainAHeldRemoval(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "heldback")
	apply(t, ns, strings.Replace(everywherePolicy, "spec:", "spec:\n  removal: {budget: 0}", 1)+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", explanationMatches("deploy/web -n "+ns, "ready in all of them"))
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"placement":{"clusterAffinity":{"clusterNames":["member1","member2"]}}}}`)
	testwait.UntilNil(t, "a removal waits", explanationMatches("deploy/web -n "+ns,
		`a removal waits for a confirmation in 1 cluster`,
		"`atoll confirm bundle/web -n heldback --plan [0-9a-f]+` releases exactly these",
		`^ +member3 +not named in clusterNames +Held`,
		`waits for a confirmation of plan .*; for \d+[smh]; to act: a person that may confirm removals$`,
	))
	// Holds are also Events on the template.
	testwait.UntilNil(t, "an Event on the template", eventOf(ns, "Deployment", "web", "RemovalHeld"))
}

// eventOf returns a check that there is a Warning about the object.
func eventOf(ns, kind, name, reason string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var events corev1.EventList
		if err := hubClient().List(ctx, &events, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason && e.Type == corev1.EventTypeWarning {
				return nil
			}
		}
		return fmt.Errorf("no Event %s on %s/%s", reason, kind, name)
	}
}

func TestExplainRefusals(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "mishaps")
	var foreign unstructured.Unstructured
	for _, o := range decodeObjects(t, ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: clash, namespace: $NS}\ndata: {a: theirs}") {
		foreign = *o
		if err := sharedWorld.clients["member1"].Create(t.Context(), &foreign); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	apply(t, ns, everywherePolicy+"---\n"+webDeployment+`
---
apiVersion: atoll.dev/v1alpha1
kind: OverridePolicy
metadata: {name: bad, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  overrideRules:
  - targetCluster: {clusterNames: [member2]}
    overriders: {plaintext: [{path: /spec/template/spec/containers/3/image, operator: replace, value: x}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: clash, namespace: $NS, annotations: {atoll.dev/clusters: "member1,member3"}}
`)
	testwait.UntilNil(t, "a patch that does not apply", explanationMatches("deploy/web -n "+ns,
		`ready in 2; not done in member2`,
		`^    - RenderFailed: .*OverridePolicy/mishaps/bad rule 0 plaintext\[0\].*there is no element 3.*; for \d+[smh]; to act: the application's owner$`,
	))
	testwait.UntilNil(t, "an Event on the template", eventOf(ns, "Deployment", "web", "RenderFailed"))
	testwait.UntilNil(t, "a name clash", explanationMatches("cm/clash -n "+ns,
		`not done in member1`, `was not made by Atoll and is left alone.*set conflictResolution`,
	))
	testwait.UntilNil(t, "an Event on the template", eventOf(ns, "ConfigMap", "clash", "Conflict"))

	// A foreign object does not block the removal, and stays.
	remove(t, "v1", "Namespace", "", ns)
	testwait.UntilNil(t, "the namespace goes", allChecks(
		inCluster("hub", "v1", "Namespace", "", ns, false), inCluster("member1", "apps/v1", "Deployment", ns, "web", false),
	))
	if err := inCluster("member1", "v1", "ConfigMap", ns, "clash", true)(t.Context()); err != nil {
		t.Error(err)
	}
}

// A taint would keep other tests' newcomers out, so this runs alone.
func TestExplainATaint(t *testing.T) {
	ns := createNamespace(t, "tainted")
	placed := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: $NS, annotations: {atoll.dev/clusters: \"*\"}}"
	}
	apply(t, ns, placed("before"))
	testwait.UntilNil(t, "delivery", explanationMatches("cm/before -n "+ns, "is in 3 clusters and ready in all of them"))
	t.Cleanup(func() {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("atoll.dev/v1alpha1")
		o.SetKind("Cluster")
		o.SetName("member3")
		if err := hubClient().Patch(context.WithoutCancel(t.Context()), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
			t.Error(err)
		}
	})
	patch(t, "atoll.dev/v1alpha1", "Cluster", "", "member3", `{"spec":{"taints":[{"key":"maintenance","effect":"NoSchedule"}]}}`)
	testwait.UntilNil(t, "what runs is kept", explanationMatches("cm/before -n "+ns, `^ +member3 +kept: taint maintenance:NoSchedule is not tolerated +Active`))
	apply(t, ns, placed("after"))
	testwait.UntilNil(t, "what comes later stays out", explanationMatches("cm/after -n "+ns,
		"is in 2 clusters and ready in all of them", `^ +member3: taint maintenance:NoSchedule is not tolerated \[taints\]$`))
}

func TestExplainADisconnectedCluster(t *testing.T) {
	ns := createNamespace(t, "faraway")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", explanationMatches("deploy/web -n "+ns, "ready in all of them"))
	if err := sharedWorld.lab.CutLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), "member3"); err != nil {
			t.Error(err)
		}
	})
	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"replicas":3}}`)
	testwait.UntilNil(t, "a disconnected cluster", explanationMatches("deploy/web -n "+ns,
		`ready in 2; not done in member3`,
		`^ +member3 +fits +Active .*away`,
		`waits for the cluster to come back; for \d+[smh]; to act: the member's administrator$`,
	))
	remove(t, "apps/v1", "Deployment", ns, "web")
	testwait.UntilNil(t, "it is gone where the hub reaches", inCluster("hub", "apps/v1", "Deployment", ns, "web", false))
	testwait.UntilNil(t, "what is gone and yet there", explanationMatches("deploy/web -n "+ns,
		`^Deployment/web in namespace faraway is deleted, and on its way out of member3`,
	))
}
