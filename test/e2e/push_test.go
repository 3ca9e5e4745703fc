package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/lab"
)

// What is placed for these tests: pods run where the agent is the hub's as elsewhere.
const pushedWeb = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS, annotations: {atoll.dev/clusters: "$CLUSTERS"}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:$TAG"}]}
`

func pushedTo(t *testing.T, ns, clusters, tag string) {
	t.Helper()
	apply(t, ns, strings.NewReplacer("$CLUSTERS", clusters, "$TAG", tag).Replace(pushedWeb))
}

// atollOn runs the CLI against the hub, and has to succeed.
func atollOn(t *testing.T, args ...string) string {
	t.Helper()
	out := binary(t, "", "atoll", args...)
	if strings.Contains(out, "\nexit status ") {
		t.Fatalf("atoll %s:\n%s", strings.Join(args, " "), out)
	}
	return out
}

// joinPush lets the hub run the agent of a member.
func joinPush(t *testing.T, name, kubeconfig string, more ...string) string {
	t.Helper()
	return atollOn(t, append([]string{"join", name, "--push", "--kubeconfig", kubeconfig, "--hub-kubeconfig", world.lab.Kubeconfig("hub"), "--timeout", "60s"}, more...)...)
}

// clusterCondition gives a check of a condition of a Cluster, by its status and reason.
func clusterCondition(cluster, kind, want string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		o, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", cluster)
		if err != nil || o == nil {
			return fmt.Sprintf("no Cluster %s: %v", cluster, err)
		}
		got := "none"
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, one := range conditions {
			if m, ok := one.(map[string]any); ok && m["type"] == kind {
				got = fmt.Sprint(m["status"], " ", m["reason"])
			}
		}
		if got != want {
			return fmt.Sprintf("%s of %s is %q, want %q", kind, cluster, got, want)
		}
		return ""
	}
}

// setMode of a Cluster, as an administrator does.
func setMode(t *testing.T, cluster string, mode v1alpha1.ClusterMode) {
	t.Helper()
	sh(t, "", fmt.Sprintf(`patch cluster %s --type merge -p {"spec":{"mode":%q}}`, cluster, mode))
}

// podsOf lists the pods of a namespace in a member by name and UID.
func podsOf(ctx context.Context, c client.Client, ns string) (string, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return "", err
	}
	var out []string
	for _, p := range list.Items {
		out = append(out, p.Name+"="+string(p.UID))
	}
	slices.Sort(out)
	return strings.Join(out, " "), nil
}

// twoPods gives a check that the Deployment's pods are there.
func twoPods(c client.Client, ns string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		got, err := podsOf(ctx, c, ns)
		if err != nil || strings.Count(got, "=") != 2 {
			return fmt.Sprintf("pods of %s: %q (%v)", ns, got, err)
		}
		return ""
	}
}

// pushInstead has the hub run the agent of a member of the lab whose own is gone, while
// the test runs.
func pushInstead(t *testing.T, member string) {
	t.Helper()
	if err := world.lab.Kill(t.Context(), "agent/"+member); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, args := range [][]string{
			{"patch", "cluster", member, "--type", "merge", "-p", `{"spec":{"mode":"Pull"}}`},
			{"delete", "secret", "-n", "atoll-system", "-l", "atoll.dev/push=" + member},
		} {
			binaryFor(ctx, t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", world.lab.Kubeconfig("hub")}, args...)...)
		}
		if err := world.lab.Start(ctx, "agent/"+member); err != nil {
			t.Error(err)
		}
	})
	joinPush(t, member, world.lab.Kubeconfig(member))
	eventually(t, converge, "the hub's agent works", clusterCondition(member, "Pushed", "True AgentWorks"))
}

// TestAMemberIsJoinedByPush: one that no agent ever ran in, from its joining to its end.
func TestAMemberIsJoinedByPush(t *testing.T) {
	ns, name := namespace(t, "push-new"), "reef"
	other, err := lab.Up(t.Context(), lab.Options{Dir: filepath.Join(t.TempDir(), "reef"), Members: 1, Hubless: true, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	kubeconfig := other.Kubeconfig("member1")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	member, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	others := pushedNow(t)
	afterwards(t, "hub", "delete cluster "+name)
	expect(t, "join", joinPush(t, name, kubeconfig), "atoll accept "+name)
	if why := clusterCondition(name, "Pushed", "none")(t.Context()); why != "" {
		t.Errorf("before it is accepted: %s", why)
	}
	if out := at(t, kubeconfig, "", "get leases -n atoll-system -o name"); strings.Contains(out, "atoll-agent") {
		t.Errorf("an agent came to the member before its cluster was accepted: %s", out)
	}
	expect(t, "accept", atollOn(t, "accept", name, "--wait", "--kubeconfig", world.lab.Kubeconfig("hub")), "is Ready")
	expect(t, "get", atollOn(t, "get", "clusters", name, "-o", "wide", "--kubeconfig", world.lab.Kubeconfig("hub")), "Push", "yes")

	pushedTo(t, ns, name, "1")
	eventually(t, converge, "what is placed runs", twoPods(member, ns))
	before, err := podsOf(t.Context(), member, ns)
	if err != nil {
		t.Fatal(err)
	}
	credentialsAreTheHubsAlone(t, name, member)
	// The agent may what it may by default, other than those of the lab.
	for what, say := range map[string]string{"pods": "." + name, "rs": "." + name, "events": "Scheduled", "controllerrevisions": "No resources found"} {
		eventually(t, converge, "what runs is shown", says(func() string { return sh(t, "", "get "+what+" -n "+ns) }, say))
	}
	// Its nodes are imagined: that they have no logs is all that stands in the way.
	expect(t, "logs", at(t, world.lab.Kubeconfig("hub"), "", "logs deploy/web --tail 1 -n "+ns), "Found 2 pods", "containerLogs/"+ns+"/web-")
	// The member lets the hub's agent be anybody, and it is not.
	expect(t, "grant", at(t, kubeconfig, "", "create clusterrolebinding anybody --clusterrole cluster-admin --serviceaccount atoll-system:atoll-agent"), "created")
	eventually(t, converge, "who asks comes in", func(context.Context) string {
		return missingIn(at(t, through(t, name), "", "auth whoami"), "atoll:masters")
	})
	nobodysName(t, name)

	restartHub(t)
	eventually(t, converge, "the hub's agent works again", clusterCondition(name, "Pushed", "True AgentWorks"))
	eventually(t, converge, "the cluster is Ready again", readyIs(name, "True"))
	if after, err := podsOf(t.Context(), member, ns); err != nil || after != before {
		t.Errorf("pods after the hub was restarted: %s (%v), before: %s", after, err, before)
	}
	expect(t, "join again", joinPush(t, name, kubeconfig), "is Ready") // with a new token
	if n := strings.Count(at(t, kubeconfig, "", "get secrets -n atoll-system -l atoll.dev/push -o name"), "secret/"); n != 1 {
		t.Errorf("the member has %d tokens for the hub", n)
	}
	if after, err := podsOf(t.Context(), member, ns); err != nil || after != before {
		t.Errorf("pods after joining again: %s (%v), before: %s", after, err, before)
	}

	(&pushed{t: t, name: name, ns: ns, lab: other, member: member, pods: before, before: others}).leaves()
}

// pushed is a member that the hub pushes to, and that leaves the fleet in each way.
type pushed struct {
	t        *testing.T
	name, ns string
	lab      *lab.Lab
	member   client.Client
	pods     string
	before   float64 // clusters that the hub pushed to
}

// pushedNow is to how many clusters the hub pushes, however they fare.
func pushedNow(t *testing.T) (n float64) {
	t.Helper()
	for line := range strings.Lines(sh(t, "", "get --raw /metrics")) {
		if strings.HasPrefix(line, "atoll_push_clusters{") {
			fields := strings.Fields(line)
			one, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			n += one
		}
	}
	return n
}

// leaves by each way, and comes back in between, while the hub, which runs its agent, is killed in
// the middle of it.
func (p *pushed) leaves() {
	t, name := p.t, p.name
	t.Helper()
	goOn := hangIn(t, p.lab, "member1")
	p.cli("remove", name, "--orphan", "--no-wait")
	eventually(t, converge, "it says how far that is", func(ctx context.Context) string {
		if c := condition(ctx, "atoll.dev/v1alpha1", "Cluster", "", name, "Removing"); !strings.Contains(c, "bundles are gone") {
			return "the output is: " + c
		}
		return ""
	})
	restartHub(t)
	goOn()
	p.left("orphaned")
	p.runs("orphaned")
	var web appsv1.Deployment
	if err := p.member.Get(t.Context(), client.ObjectKey{Namespace: p.ns, Name: "web"}, &web); err != nil || web.Labels["atoll.dev/bundle-uid"] != "" {
		t.Errorf("Atoll's marks are left: %v (%v)", web.Labels, err)
	}

	p.comesBack()
	p.runs("joined again")
	p.cli("remove", name, "--clean", "--yes", "--no-wait")
	restartHub(t)
	p.left("cleaned")
	eventually(t, converge, "what was placed there is gone", func(ctx context.Context) string {
		after, err := podsOf(ctx, p.member, p.ns)
		return strings.TrimSpace(after + because(err))
	})

	p.comesBack()
	eventually(t, converge, "what is placed runs again", twoPods(p.member, p.ns))
	var err error
	if p.pods, err = podsOf(t.Context(), p.member, p.ns); err != nil {
		t.Fatal(err)
	}
	goOn = hangIn(t, p.lab, "member1") // dead, as far as the hub can tell
	expect(t, "remove --force", p.cli("remove", name, "--force", "--timeout", "30s"), "is given up", "Deployment.apps")
	gone(t, name)
	p.credentialsGone()
	eventually(t, converge, "the hub runs one agent less", func(context.Context) string {
		if now := pushedNow(t); now != p.before {
			return fmt.Sprintf("the hub counts %v, and %v before the cluster came", now, p.before)
		}
		return ""
	})
	goOn()
	p.free()
	p.runs("given up")
}

func (p *pushed) cli(args ...string) string {
	p.t.Helper()
	return atollOn(p.t, append(args, "--kubeconfig", world.lab.Kubeconfig("hub"))...)
}

func (p *pushed) comesBack() {
	p.t.Helper()
	joinPush(p.t, p.name, p.lab.Kubeconfig("member1"))
	p.cli("accept", p.name, "--wait")
	eventually(p.t, converge, "Atoll holds what is there", func(ctx context.Context) string {
		var web appsv1.Deployment
		if err := p.member.Get(ctx, client.ObjectKey{Namespace: p.ns, Name: "web"}, &web); err != nil || web.Labels["atoll.dev/bundle-uid"] == "" {
			return fmt.Sprintf("labels %v (%v)", web.Labels, err)
		}
		return ""
	})
	eventually(p.t, converge, "the hub knows of it", func(context.Context) string {
		if out := p.cli("remove", p.name, "--clean", "--dry-run"); !strings.Contains(out, "Deployment.apps") {
			return "the output is: " + out
		}
		return ""
	})
}

// left checks that the hub has nothing of the cluster any more, and no agent in it.
func (p *pushed) left(how string) {
	p.t.Helper()
	gone(p.t, p.name)
	p.credentialsGone()
	p.free()
	p.t.Logf("%s: it has left", how)
}

func (p *pushed) credentialsGone() {
	p.t.Helper()
	eventually(p.t, converge, "the credentials went with the Cluster", func(context.Context) string {
		if out := sh(p.t, "", "get secrets -n atoll-system -l atoll.dev/push="+p.name+" -o name"); strings.Contains(out, "secret/") {
			return "the output is: " + out
		}
		return ""
	})
}

// free of agents: nobody holds the member's Lease; one that could not give it back has not renewed
// it for as long as it is good.
func (p *pushed) free() {
	p.t.Helper()
	eventually(p.t, converge, "no agent works in the member", func(ctx context.Context) string {
		var l coordinationv1.Lease
		if err := p.member.Get(ctx, client.ObjectKey{Namespace: "atoll-system", Name: "atoll-agent"}, &l); err != nil {
			return err.Error()
		}
		s := l.Spec
		if s.HolderIdentity == nil || *s.HolderIdentity == "" || time.Since(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second {
			return ""
		}
		return fmt.Sprintf("held by %s, renewed at %s", *s.HolderIdentity, s.RenewTime)
	})
}

// runs checks that nothing was restarted.
func (p *pushed) runs(when string) {
	p.t.Helper()
	if now, err := podsOf(p.t.Context(), p.member, p.ns); err != nil || now != p.pods {
		p.t.Errorf("%s: pods are %s (%v), were %s", when, now, err, p.pods)
	}
}

// credentialsAreTheHubsAlone: no role that is shipped reads them, and nothing places them.
func credentialsAreTheHubsAlone(t *testing.T, cluster string, member client.Client) {
	t.Helper()
	secret := strings.TrimPrefix(strings.TrimSpace(sh(t, "", "get secrets -n atoll-system -l atoll.dev/push="+cluster+" -o name")), "secret/")
	for group, verbs := range map[string]string{"atoll:fleet-admins": "get list watch update patch delete", "system:authenticated": "get list create"} {
		for verb := range strings.FieldsSeq(verbs) {
			if out := kubectl(t, "", "auth", "can-i", verb, "secrets", "-n", "atoll-system", "--as", "jane", "--as-group", group); !strings.HasPrefix(out, "no") {
				t.Errorf("the group %s may %s Secrets of the hub's namespace: %s", group, verb, out)
			}
		}
	}
	sh(t, "", "annotate secret -n atoll-system "+secret+" atoll.dev/clusters="+cluster)
	expect(t, "explain", atollOn(t, "explain", "secret/"+secret, "-n", "atoll-system", "--kubeconfig", world.lab.Kubeconfig("hub")), "the hub's own")
	apply(t, "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: push-after, namespace: push-new, annotations: {atoll.dev/clusters: "+cluster+"}}\ndata: {a: b}")
	eventually(t, converge, "what was placed later is there", func(ctx context.Context) string {
		return because(member.Get(ctx, client.ObjectKey{Namespace: "push-new", Name: "push-after"}, &corev1.ConfigMap{}))
	})
	if err := member.Get(t.Context(), client.ObjectKey{Namespace: "atoll-system", Name: secret}, &corev1.Secret{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the credentials in the member: %v", err)
	}
}

func because(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// missingIn gives the text where it lacks words.
func missingIn(text, words string) string {
	if strings.Contains(text, words) {
		return ""
	}
	return text
}

func restartHub(t *testing.T) {
	t.Helper()
	takeDown(t, "hub")
	bringBack(t, "hub")
}

// TestSwitchingBetweenPullAndPush, and both at once, re-creates nothing.
func TestSwitchingBetweenPullAndPush(t *testing.T) {
	ns, member := namespace(t, "push-switch"), "member3"
	pushedTo(t, ns, member, "1")
	eventually(t, converge, "what is placed runs", twoPods(world.clients[member], ns))
	before, err := podsOf(t.Context(), world.clients[member], ns)
	if err != nil {
		t.Fatal(err)
	}
	deployment := uidIn(t, member, "apps/v1", "Deployment", ns, "web")
	same := func(when string) {
		t.Helper()
		if got, err := podsOf(t.Context(), world.clients[member], ns); err != nil || got != before {
			t.Errorf("%s: pods are %s (%v), were %s", when, got, err, before)
		}
		if got := uidIn(t, member, "apps/v1", "Deployment", ns, "web"); got != deployment {
			t.Errorf("%s: the Deployment is another", when)
		}
	}
	// edited changes what agents see and pods do not.
	edited := func(value string) {
		t.Helper()
		sh(t, "", "label deployment web -n "+ns+" by="+value+" --overwrite")
		eventually(t, converge, "an edit arrives", shows([]string{member}, object{"apps/v1", "Deployment", ns, "web"}, "metadata.labels.by", value))
	}
	pushInstead(t, member)
	edited("push")
	same("pushed to")

	started := make(chan error, 1)
	go func() { started <- world.lab.Start(t.Context(), "agent/"+member) }() // it waits for a link to the hub
	eventually(t, converge, "the agent in the member is there", func(context.Context) string {
		if log := tail(filepath.Join(world.lab.Dir(), "logs", "agent-"+member+".log")); !strings.Contains(log, "waiting for its lease to end") {
			return "the output is: " + log
		}
		return ""
	})
	edited("push-beside-pull")
	if why := clusterCondition(member, "Pushed", "True AgentWorks")(t.Context()); why != "" {
		t.Errorf("the agent in the member is to stand by: %s", why)
	}
	setMode(t, member, v1alpha1.ModePull)
	eventually(t, converge, "the hub's agent is gone", clusterCondition(member, "Pushed", "False CredentialsNotUsed"))
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	edited("pull")
	same("pulled again")

	setMode(t, member, v1alpha1.ModePush)
	eventually(t, converge, "the hub's agent stands by", clusterCondition(member, "Pushed", "True StandsBy"))
	edited("pull-beside-push")
	if err := world.lab.Kill(t.Context(), "agent/"+member); err != nil {
		t.Fatal(err)
	}
	eventually(t, converge, "the hub's agent takes over", clusterCondition(member, "Pushed", "True AgentWorks"))
	edited("push-again")
	same("after all that")
}

// TestAMemberThatHangsDelaysNoOther: one is dead and one hangs, when the hub starts, too.
func TestAMemberThatHangsDelaysNoOther(t *testing.T) {
	ns := namespace(t, "push-hang")
	pushInstead(t, "member2")
	pushInstead(t, "member3")
	hang(t, "member2")
	restartHub(t)
	begin := time.Now()
	pushedTo(t, ns, "member2,member3", "1")
	eventually(t, 10*time.Second, "the other one gets what is placed", twoPods(world.clients["member3"], ns))
	t.Logf("the other one has what is placed after %s", time.Since(begin).Round(100*time.Millisecond))
	eventually(t, converge, "it is said of the one that hangs", clusterCondition("member2", "Pushed", "False MemberUnreachable"))
	expect(t, "explain", atollOn(t, "explain", "deployment/web", "-n", ns, "--kubeconfig", world.lab.Kubeconfig("hub")), "the agent that the hub runs for the cluster: MemberUnreachable")
}

// hang stops a member's process until the test ends, and lets it go on then.
func hang(t *testing.T, member string) {
	t.Helper()
	hangIn(t, world.lab, member)
}

// hangIn stops a member's process of a lab until it is let go on, which is when the test ends at
// the latest.
func hangIn(t *testing.T, l *lab.Lab, member string) (goOn func()) {
	t.Helper()
	status, err := l.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(status.Components, func(c lab.ComponentStatus) bool { return c.Name == member })
	if i < 0 {
		t.Fatalf("no member %s", member)
	}
	pid := status.Components[i].PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn = func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may have ended
	return goOn
}
