package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

// policyForKinds returns a policy for every object of the kinds in the namespace, everywhere.
func policyForKinds(kinds ...string) string {
	var selectors []string
	for _, k := range kinds {
		apiVersion, kind, _ := strings.Cut(k, " ")
		selectors = append(selectors, fmt.Sprintf("{apiVersion: %s, kind: %s}", apiVersion, kind))
	}
	return `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: $NS}
spec:
  resourceSelectors: [` + strings.Join(selectors, ", ") + `]
  placement: {clusterAffinity: {clusterNames: [member1, member2, member3]}}
`
}

// mustKubectl runs kubectl against the hub and gives what it printed; it has to succeed. The
// arguments are separated by blanks; $NS is not replaced.
func mustKubectl(t *testing.T, stdin, args string) string {
	t.Helper()
	out := kubectlOutput(t, stdin, strings.Fields(args)...)
	if strings.Contains(out, "\nexit status ") {
		t.Fatalf("kubectl %s:\n%s", args, out)
	}
	return out
}

// kubectlFails runs kubectl, which must fail and print all of says.
func kubectlFails(t *testing.T, stdin, args string, says ...string) {
	t.Helper()
	out := kubectlOutput(t, stdin, strings.Fields(args)...)
	if !strings.Contains(out, "\nexit status ") {
		t.Errorf("kubectl %s succeeded:\n%s", args, out)
	}
	for _, s := range says {
		if !strings.Contains(out, s) {
			t.Errorf("kubectl %s does not contain %q:\n%s", args, s, out)
		}
	}
}

// kubectlAtEnd runs kubectl against a cluster when the test has ended, however it ends.
func kubectlAtEnd(t *testing.T, cluster, args string) {
	t.Helper()
	t.Cleanup(func() {
		binaryFor(context.WithoutCancel(t.Context()), t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath(cluster)}, strings.Fields(args)...)...)
	})
}

// writeManifest writes a file of the test's own and gives its path.
func writeManifest(t *testing.T, name, ns, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "$NS", ns)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// objectName names one object of any cluster.
type objectName struct{ apiVersion, kind, namespace, name string }

// fieldShows returns a check that a field of an object, by its dotted path, prints as want
// in each of the clusters.
func fieldShows(clusters []string, o objectName, path, want string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for _, c := range clusters {
			live, err := get(ctx, c, o.apiVersion, o.kind, o.namespace, o.name)
			if err != nil || live == nil {
				return fmt.Errorf("%s: no %s %s/%s (%v)", c, o.kind, o.namespace, o.name, err)
			}
			got, _, _ := unstructured.NestedFieldNoCopy(live.Object, strings.Split(path, ".")...)
			if fmt.Sprint(got) != want {
				return fmt.Errorf("%s: %s %s/%s has %s=%v, want %s", c, o.kind, o.namespace, o.name, path, got, want)
			}
		}
		return nil
	}
}

func TestDiscoveryIsLikeAnyClusters(t *testing.T) {
	t.Parallel()
	if out := mustKubectl(t, "", "version"); !strings.Contains(out, "Server Version: v1.") || strings.Contains(out, "WARNING") {
		t.Errorf("kubectl version:\n%s", out)
	}
	resources := mustKubectl(t, "", "api-resources -o name")
	for _, r := range []string{"deployments.apps", "jobs.batch", "customresourcedefinitions.apiextensions.k8s.io", "propagationpolicies.atoll.dev", "targetslices.engine.atoll.dev"} {
		if !slices.Contains(strings.Fields(resources), r) {
			t.Errorf("api-resources lack %s", r)
		}
	}
	for path, says := range map[string]string{
		"deployment.spec.strategy.rollingUpdate":             "maxSurge",
		"pod.spec.containers.livenessProbe":                  "periodSeconds",
		"propagationpolicy.spec.placement.clusterAffinity":   "clusterNames",
		"overridepolicy.spec.overrideRules.overriders":       "imageOverrider",
		"ingress --api-version=networking.k8s.io/v1":         "KIND:       Ingress",
		"clusterpropagationpolicy --recursive":               "resourceSelectors",
		"bundle.status":                                      "conditions",
		"cluster.spec.taints":                                "effect",
		"customresourcedefinition.spec.versions":             "additionalPrinterColumns",
		"horizontalpodautoscaler.spec --output=plaintext":    "scaleTargetRef",
		"mutatingwebhookconfiguration.webhooks.clientConfig": "caBundle",
	} {
		if out := mustKubectl(t, "", "explain "+path); !strings.Contains(out, says) {
			t.Errorf("explain %s does not speak of %s:\n%s", path, says, out)
		}
	}
	if out := mustKubectl(t, "", "get --raw /openapi/v3"); !strings.Contains(out, "apis/atoll.dev/v1alpha1") {
		t.Error("OpenAPI lacks Atoll's group")
	}
	kubectlFails(t, "", "explain deployment.spec.nothing", `field "nothing" does not exist`)
}

func TestKubectlWritesInEveryWay(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "ways")
	apply(t, ns, policyForKinds("apps/v1 Deployment", "v1 ConfigMap"))
	file := writeManifest(t, "web.yaml", ns, webDeployment)
	mustKubectl(t, "", "apply -f "+file)
	in := func(path, want string) {
		t.Helper()
		testwait.UntilNil(t, path, fieldShows(memberNames, objectName{"apps/v1", "Deployment", ns, "web"}, path, want))
	}
	in("spec.replicas", "2")
	if out := mustKubectl(t, "", "apply -f "+file); !strings.Contains(out, "deployment.apps/web unchanged") {
		t.Errorf("the same again changes something:\n%s", out)
	}
	if out := mustKubectl(t, "", "diff -f "+file); out != "" {
		t.Errorf("there is a difference:\n%s", out)
	}
	three := writeManifest(t, "three.yaml", ns, strings.Replace(webDeployment, "replicas: 2", "replicas: 3", 1))
	kubectlFails(t, "", "diff -f "+three, "-  replicas: 2", "+  replicas: 3")
	mustKubectl(t, "", "apply --dry-run=server -f "+three)
	mustKubectl(t, "", "delete --dry-run=server -f "+three)
	if err := fieldShows([]string{"hub"}, objectName{"apps/v1", "Deployment", ns, "web"}, "spec.replicas", "2")(t.Context()); err != nil {
		t.Errorf("a dry run was stored: %s", err)
	}
	mustKubectl(t, "", "apply -f "+three)
	in("spec.replicas", "3")

	mustKubectl(t, "", "scale -n "+ns+" deploy/web --replicas=4")
	in("spec.replicas", "4")
	kubectlFails(t, "", "apply --server-side -f "+file, "conflict", ".spec.replicas")
	mustKubectl(t, "", "apply --server-side --force-conflicts -f "+file)
	in("spec.replicas", "2")
	mustKubectl(t, "", "patch -n "+ns+` deploy web --type=json -p [{"op":"replace","path":"/spec/replicas","value":1}]`)
	in("spec.replicas", "1")
	mustKubectl(t, "", "patch -n "+ns+` deploy web -p {"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"A","value":"b"}]}]}}}}`)
	testwait.UntilNil(t, "a strategic merge", containerField(ns, "env", "[map[name:A value:b]]"))
	mustKubectl(t, "", "set env -n "+ns+" deploy/web A-")
	testwait.UntilNil(t, "a field that is stated no more", containerField(ns, "env", "<nil>"))
	mustKubectl(t, "", "label -n "+ns+" deploy web tier=front")
	in("metadata.labels.tier", "front")
	mustKubectl(t, "", "label -n "+ns+" deploy web tier-")
	in("metadata.labels.tier", "<nil>")
	mustKubectl(t, "", "replace -f "+three)
	in("spec.replicas", "3")
	// The API server records no owner for zero.
	mustKubectl(t, "", "scale -n "+ns+" deploy/web --replicas=0")
	in("spec.replicas", "0")
	edit := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(lab.BinDirVariable), "atoll-lab"), "kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"), "edit", "-n", ns, "deploy", "web")
	edit.Env = append(os.Environ(), "KUBE_EDITOR=sed -i s#registry.example/web:1#registry.example/web:7#")
	if out, err := edit.CombinedOutput(); err != nil {
		t.Fatalf("kubectl edit: %v\n%s", err, out)
	}
	testwait.UntilNil(t, "edit", containerField(ns, "image", "registry.example/web:7"))
	was, err := get(t.Context(), "member1", "apps/v1", "Deployment", ns, "web")
	if err != nil || was == nil {
		t.Fatal(was, err)
	}
	mustKubectl(t, "", "replace --force -f "+file)
	in("spec.replicas", "2")
	testwait.UntilNil(t, "the object is a new one everywhere", func(ctx context.Context) error {
		o, err := get(ctx, "member1", "apps/v1", "Deployment", ns, "web")
		if err != nil || o == nil || o.GetUID() == was.GetUID() {
			return fmt.Errorf("member1 has %v (%v)", o != nil, err)
		}
		return nil
	})
}

// containerField returns a check of a field of the first container of Deployment web in
// every member.
func containerField(ns, field, want string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for _, m := range memberNames {
			o, err := get(ctx, m, "apps/v1", "Deployment", ns, "web")
			if err != nil || o == nil {
				return fmt.Errorf("%s: no Deployment (%v)", m, err)
			}
			cs, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if got := fmt.Sprint(cs[0].(map[string]any)[field]); got != want {
				return fmt.Errorf("%s: %s is %s, want %s", m, field, got, want)
			}
		}
		return nil
	}
}

func TestPruneDeletesObjectsMissingInTheDirectory(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "prune")
	apply(t, ns, policyForKinds("v1 ConfigMap", "v1 Secret"))
	const one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, namespace: $NS, labels: {set: prune}}\ndata: {a: b}\n"
	const two = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: two, namespace: $NS, labels: {set: prune}}\nstringData: {a: b}\n"
	mustKubectl(t, "", "apply --prune -n "+ns+" -l set=prune -f "+writeManifest(t, "both.yaml", ns, one+two))
	testwait.UntilNil(t, "delivery", allChecks(existsIn("v1", "ConfigMap", ns, "one", memberNames...), existsIn("v1", "Secret", ns, "two", memberNames...)))
	if out := mustKubectl(t, "", "apply --prune -n "+ns+" -l set=prune -f "+writeManifest(t, "one.yaml", ns, one)); !strings.Contains(out, "secret/two pruned") {
		t.Errorf("nothing was pruned:\n%s", out)
	}
	testwait.UntilNil(t, "pruning", allChecks(existsIn("v1", "ConfigMap", ns, "one", memberNames...), existsIn("v1", "Secret", ns, "two")))
}

// An owner on the hub takes what it owns along, there and in the members; orphaned,
// it stays in both.
func TestOwnersTakeTheirOwnAlong(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "owners")
	apply(t, ns, policyForKinds("v1 ConfigMap"))
	for _, mode := range []string{"background", "foreground", "orphan"} {
		apply(t, ns, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owner-"+mode+", namespace: $NS}")
		owner, err := get(t.Context(), "hub", "v1", "ConfigMap", ns, "owner-"+mode)
		if err != nil || owner == nil {
			t.Fatal(owner, err)
		}
		apply(t, ns, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned-%s, namespace: $NS, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner-%s, uid: %s, blockOwnerDeletion: true}]}", mode, mode, owner.GetUID()))
		testwait.UntilNil(t, "delivery", allChecks(existsIn("v1", "ConfigMap", ns, "owned-"+mode, memberNames...), existsIn("v1", "ConfigMap", ns, "owner-"+mode, memberNames...)))
		mustKubectl(t, "", fmt.Sprintf("delete -n %s cm owner-%s --cascade=%s --timeout=60s", ns, mode, mode))
		if err := inCluster("hub", "v1", "ConfigMap", ns, "owner-"+mode, false)(t.Context()); err != nil {
			t.Errorf("kubectl delete returned early: %s", err)
		}
		left := memberNames
		if mode != "orphan" {
			left = nil
		}
		testwait.UntilNil(t, mode, allChecks(
			existsIn("v1", "ConfigMap", ns, "owner-"+mode),
			existsIn("v1", "ConfigMap", ns, "owned-"+mode, left...),
			inCluster("hub", "v1", "ConfigMap", ns, "owned-"+mode, mode == "orphan"),
		))
	}
}

func TestRolesActOnTheHub(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "roles")
	mustKubectl(t, "", "create -n "+ns+" role editor --verb=get,list,create,patch,update --resource=deployments.apps,configmaps")
	mustKubectl(t, "", "create -n "+ns+" rolebinding editor --role=editor --user=ann")
	mustKubectl(t, "", "create -n "+ns+" sa robot")
	mustKubectl(t, "", "create -n "+ns+" rolebinding robot --role=editor --serviceaccount="+ns+":robot")
	testwait.UntilNil(t, "the binding acts", func(context.Context) error {
		if out := strings.TrimSpace(kubectlOutput(t, "", "auth", "can-i", "create", "deploy", "-n", ns, "--as=ann")); out != "yes" {
			return fmt.Errorf("the output is: %s", out)
		}
		return nil
	})
	file := writeManifest(t, "web.yaml", ns, webDeployment)
	mustKubectl(t, "", "apply --as=ann -f "+file)
	mustKubectl(t, "", "apply --as=ann --server-side --force-conflicts -f "+file)
	kubectlFails(t, "", "delete --as=ann -f "+file, "Forbidden", `User "ann" cannot delete`)
	kubectlFails(t, "", "get --as=ann secrets -n "+ns, "Forbidden")
	kubectlFails(t, "", "apply --as=ann -f "+writeManifest(t, "other.yaml", "default", webDeployment), "Forbidden")
	token := strings.TrimSpace(mustKubectl(t, "", "create token -n "+ns+" robot"))
	// The administrator's certificate would speak louder than the token.
	bare := strings.TrimSpace(mustKubectl(t, "", "config view --raw -o jsonpath={.clusters[0].cluster.certificate-authority-data}"))
	config := writeManifest(t, "robot.kubeconfig", ns, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: r, contexts: [{name: r, context: {cluster: r, user: r}}],
 clusters: [{name: r, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: r, user: {token: %s}}]}`,
		mustKubectl(t, "", "config view -o jsonpath={.clusters[0].cluster.server}"), bare, token))
	robot := func(args ...string) string {
		return binaryOutput(t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", config}, args...)...)
	}
	if out := robot("get", "deploy", "-n", ns, "-o", "name"); strings.TrimSpace(out) != "deployment.apps/web" {
		t.Errorf("a ServiceAccount's token is not taken:\n%s", out)
	}
	if out := robot("get", "secrets", "-n", ns); !strings.Contains(out, "Forbidden") {
		t.Errorf("a ServiceAccount may read what no role allows:\n%s", out)
	}
}

func TestWatchAndWaitAndDescribe(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "watch")
	apply(t, ns, policyForKinds("apps/v1 Deployment")+"---\n"+webDeployment)
	mustKubectl(t, "", "wait -n "+ns+" --for=condition=Available deploy/web --timeout=60s")
	for _, m := range memberNames {
		if err := fieldIs(m, ns, "web", "status.availableReplicas", 2)(t.Context()); err != nil {
			t.Errorf("the hub said Available too early: %s", err)
		}
	}
	lines := watchLines(t, "get", "-n", ns, "deploy", "web", "-w", "--no-headers")
	seen := []string{firstColumns(<-lines)}
	mustKubectl(t, "", "scale -n "+ns+" deploy/web --replicas=3")
	mustKubectl(t, "", "wait -n "+ns+" --for=jsonpath={.status.availableReplicas}=3 deploy/web --timeout=60s")
	for line := range lines {
		seen = append(seen, firstColumns(line))
		if seen[len(seen)-1] == "web 3/3 3 3" {
			break
		}
	}
	if len(seen) < 2 || seen[0] != "web 2/2 2 2" || seen[len(seen)-1] != "web 3/3 3 3" {
		t.Errorf("get -w showed %q", seen)
	}
	if out := mustKubectl(t, "", "describe -n "+ns+" deploy web"); !strings.Contains(out, "3 desired | 3 updated | 3 total | 3 available | 0 unavailable") || !strings.Contains(out, "NewReplicaSetAvailable") {
		t.Errorf("describe:\n%s", out)
	}
	gone := make(chan string, 1)
	go func() {
		gone <- kubectlOutput(t, "", "wait", "-n", ns, "--for=delete", "deploy/web", "--timeout=60s")
	}()
	mustKubectl(t, "", "delete -n "+ns+" deploy web --wait=false")
	if out := <-gone; strings.Contains(out, "exit status") {
		t.Errorf("wait --for=delete:\n%s", out)
	}
	if err := existsIn("apps/v1", "Deployment", ns, "web")(t.Context()); err != nil {
		t.Errorf("the template went before what it placed: %s", err)
	}
}

// firstColumns are the first ones of a line of kubectl's tables.
func firstColumns(line string) string {
	fields := strings.Fields(line)
	return strings.Join(fields[:min(4, len(fields))], " ")
}

// watchLines starts kubectl against the hub and gives its lines until the test ends.
func watchLines(t *testing.T, args ...string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(lab.BinDirVariable), "atoll-lab"), append([]string{"kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = cmd.Wait() // it was killed
	})
	return lines
}

// Nothing runs on the hub; a request for running containers gets this answer.
func TestNothingRunsOnTheHub(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "norun")
	mustKubectl(t, "", "run -n "+ns+" once --image=registry.example/once:1")
	apply(t, ns, webDeployment)
	const answer = "the hub keeps templates, and runs nothing"
	kubectlFails(t, "", "logs -n "+ns+" once", "pod "+ns+"/once has no logs here", answer)
	kubectlFails(t, "", "exec -n "+ns+" once -- ls", answer)
	kubectlFails(t, "", "attach -n "+ns+" once", answer)
	kubectlFails(t, "", "debug -n "+ns+" once --image=registry.example/tool:1", answer)
	kubectlFails(t, "", "get --raw /api/v1/namespaces/"+ns+"/services/web/proxy", answer)
	kubectlFails(t, "", "rollout undo -n "+ns+" deploy/web", "no rollout history found")
	kubectlFails(t, "", "top pod -n "+ns, "metrics not available yet")
	if out := mustKubectl(t, "", "get pods -n "+ns+" --no-headers"); !strings.HasPrefix(out, "once ") || strings.Contains(out, "Warning") {
		t.Errorf("get pods:\n%s", out)
	}
}
