package e2e

import (
	"context"
	"errors"
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
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

// The content for these tests: pods run where the hub runs the agent as elsewhere.
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
	out := binaryOutput(t, "", "atoll", args...)
	if strings.Contains(out, "\nexit status ") {
		t.Fatalf("atoll %s:\n%s", strings.Join(args, " "), out)
	}
	return out
}

// joinPush lets the hub run the agent of a member.
func joinPush(t *testing.T, name, kubeconfig string, more ...string) string {
	t.Helper()
	return atollOn(t, append([]string{"join", name, "--push", "--kubeconfig", kubeconfig, "--hub-kubeconfig", sharedWorld.lab.KubeconfigPath("hub"), "--timeout", "60s"}, more...)...)
}

// clusterCondition returns a check of a condition of a Cluster, by its status and reason.
func clusterCondition(cluster, kind, want string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", cluster)
		if err != nil || o == nil {
			return fmt.Errorf("no Cluster %s: %v", cluster, err)
		}
		got := "none"
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, one := range conditions {
			if m, ok := one.(map[string]any); ok && m["type"] == kind {
				got = fmt.Sprint(m["status"], " ", m["reason"])
			}
		}
		if got != want {
			return fmt.Errorf("%s of %s is %q, want %q", kind, cluster, got, want)
		}
		return nil
	}
}

// setMode sets the mode of a Cluster, as an administrator does.
func setMode(t *testing.T, cluster string, mode v1alpha1.ClusterMode) {
	t.Helper()
	mustKubectl(t, "", fmt.Sprintf(`patch cluster %s --type merge -p {"spec":{"mode":%q}}`, cluster, mode))
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

// twoPods returns a check that the Deployment's pods are there.
func twoPods(c client.Client, ns string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		got, err := podsOf(ctx, c, ns)
		if err != nil || strings.Count(got, "=") != 2 {
			return fmt.Errorf("pods of %s: %q (%v)", ns, got, err)
		}
		return nil
	}
}

// pushInstead has the hub run the agent of a member of the lab whose own is gone, while
// the test runs.
func pushInstead(t *testing.T, member string) {
	t.Helper()
	if err := sharedWorld.lab.KillComponent(t.Context(), "agent/"+member); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, args := range [][]string{
			{"patch", "cluster", member, "--type", "merge", "-p", `{"spec":{"mode":"Pull"}}`},
			{"delete", "secret", "-n", "atoll-system", "-l", "atoll.dev/push=" + member},
		} {
			binaryFor(ctx, t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")}, args...)...)
		}
		if err := sharedWorld.lab.StartComponent(ctx, "agent/"+member); err != nil {
			t.Error(err)
		}
	})
	joinPush(t, member, sharedWorld.lab.KubeconfigPath(member))
	testwait.UntilNil(t, "the hub's agent works", clusterCondition(member, "Pushed", "True AgentWorks"))
}

// TestAMemberIsJoinedByPush: a member without any earlier agent, from its joining to its
// end.
func TestAMemberIsJoinedByPush(t *testing.T) {
	ns, name := createNamespace(t, "push-new"), "reef"
	other, err := lab.BringUp(t.Context(), lab.Options{EndsWithStarter: true, Dir: filepath.Join(t.TempDir(), "reef"), Members: 1, Hubless: true, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.StopAll(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	kubeconfig := other.KubeconfigPath("member1")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	member, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	others := pushedNow(t)
	kubectlAtEnd(t, "hub", "delete cluster "+name)
	expectOutput(t, "join", joinPush(t, name, kubeconfig), "atoll accept "+name)
	if err := clusterCondition(name, "Pushed", "none")(t.Context()); err != nil {
		t.Errorf("before it is accepted: %s", err)
	}
	if out := kubectlAt(t, kubeconfig, "", "get leases -n atoll-system -o name"); strings.Contains(out, "atoll-agent") {
		t.Errorf("an agent came to the member before its cluster was accepted: %s", out)
	}
	expectOutput(t, "accept", atollOn(t, "accept", name, "--wait", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")), "is Ready")
	expectOutput(t, "get", atollOn(t, "get", "clusters", name, "-o", "wide", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")), "Push", "yes")

	pushedTo(t, ns, name, "1")
	testwait.UntilNil(t, "what is placed runs", twoPods(member, ns))
	before, err := podsOf(t.Context(), member, ns)
	if err != nil {
		t.Fatal(err)
	}
	credentialsAreTheHubsAlone(t, name, member)
	// The agent may what it may by default, other than those of the lab.
	for what, say := range map[string]string{"pods": "." + name, "rs": "." + name, "events": "Scheduled", "controllerrevisions": "No resources found"} {
		testwait.UntilNil(t, "what runs is shown", logSays(func() string { return mustKubectl(t, "", "get "+what+" -n "+ns) }, say))
	}
	// Its nodes are imagined: that they have no logs is all that stands in the way.
	expectOutput(t, "logs", kubectlAt(t, sharedWorld.lab.KubeconfigPath("hub"), "", "logs deploy/web --tail 1 -n "+ns), "Found 2 pods", "containerLogs/"+ns+"/web-")
	// The member lets the hub's agent impersonate every user, and the agent does not.
	expectOutput(t, "grant", kubectlAt(t, kubeconfig, "", "create clusterrolebinding test-agent-admin --clusterrole cluster-admin --serviceaccount atoll-system:atoll-agent"), "created")
	testwait.UntilNil(t, "the user arrives", func(context.Context) error {
		return outputContains(kubectlAt(t, proxiedKubeconfig(t, name), "", "auth whoami"), "atoll:masters")
	})
	expectNoMemberIdentity(t, name)

	restartHub(t)
	testwait.UntilNil(t, "the hub's agent works again", clusterCondition(name, "Pushed", "True AgentWorks"))
	testwait.UntilNil(t, "the cluster is Ready again", readyIs(name, "True"))
	if after, err := podsOf(t.Context(), member, ns); err != nil || after != before {
		t.Errorf("pods after the hub was restarted: %s (%v), before: %s", after, err, before)
	}
	expectOutput(t, "join again", joinPush(t, name, kubeconfig), "is Ready") // with a new token
	if n := strings.Count(kubectlAt(t, kubeconfig, "", "get secrets -n atoll-system -l atoll.dev/push -o name"), "secret/"); n != 1 {
		t.Errorf("the member has %d tokens for the hub", n)
	}
	if after, err := podsOf(t.Context(), member, ns); err != nil || after != before {
		t.Errorf("pods after joining again: %s (%v), before: %s", after, err, before)
	}

	(&pushedMember{t: t, name: name, ns: ns, lab: other, member: member, pods: before, before: others}).leaveEachWay()
}

// pushedMember is a member that the hub pushes to, and that leaves the fleet in each way.
type pushedMember struct {
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
	for line := range strings.Lines(mustKubectl(t, "", "get --raw /metrics")) {
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

// leaveEachWay leaves by each way, and returns in between, while the hub, which runs its
// agent, is killed in the middle of it.
func (p *pushedMember) leaveEachWay() {
	t, name := p.t, p.name
	t.Helper()
	goOn := hangIn(t, p.lab, "member1")
	p.runCLI("remove", name, "--orphan", "--no-wait")
	testwait.UntilNil(t, "it says how far that is", func(ctx context.Context) error {
		if c := conditionText(ctx, "atoll.dev/v1alpha1", "Cluster", "", name, "Removing"); !strings.Contains(c, "bundles are gone") {
			return errors.New("the output is: " + c)
		}
		return nil
	})
	restartHub(t)
	goOn()
	p.checkLeft("orphaned")
	p.checkRunning("orphaned")
	var web appsv1.Deployment
	if err := p.member.Get(t.Context(), client.ObjectKey{Namespace: p.ns, Name: "web"}, &web); err != nil || web.Labels["atoll.dev/bundle-uid"] != "" {
		t.Errorf("Atoll's marks are left: %v (%v)", web.Labels, err)
	}

	p.comesBack()
	p.checkRunning("joined again")
	p.runCLI("remove", name, "--clean", "--yes", "--no-wait")
	restartHub(t)
	p.checkLeft("cleaned")
	testwait.UntilNil(t, "what was placed there is gone", func(ctx context.Context) error {
		after, err := podsOf(ctx, p.member, p.ns)
		if err == nil && after != "" {
			err = fmt.Errorf("pods are %s", after)
		}
		return err
	})

	p.comesBack()
	testwait.UntilNil(t, "what is placed runs again", twoPods(p.member, p.ns))
	var err error
	if p.pods, err = podsOf(t.Context(), p.member, p.ns); err != nil {
		t.Fatal(err)
	}
	goOn = hangIn(t, p.lab, "member1") // dead, from the view of the hub
	expectOutput(t, "remove --force", p.runCLI("remove", name, "--force", "--timeout", "30s"), "is given up", "Deployment.apps")
	checkGone(t, name)
	p.credentialsGone()
	testwait.UntilNil(t, "the hub runs one agent less", func(context.Context) error {
		if now := pushedNow(t); now != p.before {
			return fmt.Errorf("the hub counts %v, and %v before the cluster came", now, p.before)
		}
		return nil
	})
	goOn()
	p.checkNoAgent()
	p.checkRunning("given up")
}

func (p *pushedMember) runCLI(args ...string) string {
	p.t.Helper()
	return atollOn(p.t, append(args, "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"))...)
}

func (p *pushedMember) comesBack() {
	p.t.Helper()
	joinPush(p.t, p.name, p.lab.KubeconfigPath("member1"))
	p.runCLI("accept", p.name, "--wait")
	testwait.UntilNil(p.t, "Atoll holds what is there", func(ctx context.Context) error {
		var web appsv1.Deployment
		if err := p.member.Get(ctx, client.ObjectKey{Namespace: p.ns, Name: "web"}, &web); err != nil || web.Labels["atoll.dev/bundle-uid"] == "" {
			return fmt.Errorf("labels %v (%v)", web.Labels, err)
		}
		return nil
	})
	testwait.UntilNil(p.t, "the hub knows of it", func(context.Context) error {
		if out := p.runCLI("remove", p.name, "--clean", "--dry-run"); !strings.Contains(out, "Deployment.apps") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}

// checkLeft checks that the hub has nothing of the cluster any more, and no agent in it.
func (p *pushedMember) checkLeft(how string) {
	p.t.Helper()
	checkGone(p.t, p.name)
	p.credentialsGone()
	p.checkNoAgent()
	p.t.Logf("%s: it has left", how)
}

func (p *pushedMember) credentialsGone() {
	p.t.Helper()
	testwait.UntilNil(p.t, "the credentials went with the Cluster", func(context.Context) error {
		if out := mustKubectl(p.t, "", "get secrets -n atoll-system -l atoll.dev/push="+p.name+" -o name"); strings.Contains(out, "secret/") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}

// checkNoAgent checks that no agent holds the member's Lease. An agent that could not
// release it has not renewed it for its duration.
func (p *pushedMember) checkNoAgent() {
	p.t.Helper()
	testwait.UntilNil(p.t, "no agent works in the member", func(ctx context.Context) error {
		var l coordinationv1.Lease
		if err := p.member.Get(ctx, client.ObjectKey{Namespace: "atoll-system", Name: "atoll-agent"}, &l); err != nil {
			return err
		}
		s := l.Spec
		if s.HolderIdentity == nil || *s.HolderIdentity == "" || time.Since(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second {
			return nil
		}
		return fmt.Errorf("held by %s, renewed at %s", *s.HolderIdentity, s.RenewTime)
	})
}

// checkRunning checks that nothing was restarted.
func (p *pushedMember) checkRunning(when string) {
	p.t.Helper()
	if now, err := podsOf(p.t.Context(), p.member, p.ns); err != nil || now != p.pods {
		p.t.Errorf("%s: pods are %s (%v), were %s", when, now, err, p.pods)
	}
}

// credentialsAreTheHubsAlone: no role that is shipped reads them, and nothing places them.
func credentialsAreTheHubsAlone(t *testing.T, cluster string, member client.Client) {
	t.Helper()
	secret := strings.TrimPrefix(strings.TrimSpace(mustKubectl(t, "", "get secrets -n atoll-system -l atoll.dev/push="+cluster+" -o name")), "secret/")
	for group, verbs := range map[string]string{"atoll:fleet-admins": "get list watch update patch delete", "system:authenticated": "get list create"} {
		for verb := range strings.FieldsSeq(verbs) {
			if out := kubectlOutput(t, "", "auth", "can-i", verb, "secrets", "-n", "atoll-system", "--as", "jane", "--as-group", group); !strings.HasPrefix(out, "no") {
				t.Errorf("the group %s may %s Secrets of the hub's namespace: %s", group, verb, out)
			}
		}
	}
	mustKubectl(t, "", "annotate secret -n atoll-system "+secret+" atoll.dev/clusters="+cluster)
	expectOutput(t, "explain", atollOn(t, "explain", "secret/"+secret, "-n", "atoll-system", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")), "the hub's own")
	apply(t, "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: push-after, namespace: push-new, annotations: {atoll.dev/clusters: "+cluster+"}}\ndata: {a: b}")
	testwait.UntilNil(t, "what was placed later is there", func(ctx context.Context) error {
		return member.Get(ctx, client.ObjectKey{Namespace: "push-new", Name: "push-after"}, &corev1.ConfigMap{})
	})
	if err := member.Get(t.Context(), client.ObjectKey{Namespace: "atoll-system", Name: secret}, &corev1.Secret{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the credentials in the member: %v", err)
	}
}

// outputContains returns an error with the output of a command that lacks the words.
func outputContains(out, words string) error {
	if !strings.Contains(out, words) {
		return fmt.Errorf("%q is not in the output: %s", words, out)
	}
	return nil
}

func restartHub(t *testing.T) {
	t.Helper()
	takeDown(t, "hub")
	bringBack(t, "hub")
}

// TestSwitchingBetweenPullAndPush, and both at once, re-creates nothing.
func TestSwitchingBetweenPullAndPush(t *testing.T) {
	ns, member := createNamespace(t, "push-switch"), "member3"
	pushedTo(t, ns, member, "1")
	testwait.UntilNil(t, "what is placed runs", twoPods(sharedWorld.clients[member], ns))
	before, err := podsOf(t.Context(), sharedWorld.clients[member], ns)
	if err != nil {
		t.Fatal(err)
	}
	deployment := uidIn(t, member, "apps/v1", "Deployment", ns, "web")
	same := func(when string) {
		t.Helper()
		if got, err := podsOf(t.Context(), sharedWorld.clients[member], ns); err != nil || got != before {
			t.Errorf("%s: pods are %s (%v), were %s", when, got, err, before)
		}
		if got := uidIn(t, member, "apps/v1", "Deployment", ns, "web"); got != deployment {
			t.Errorf("%s: the Deployment is another", when)
		}
	}
	// edited changes what agents see and pods do not.
	edited := func(value string) {
		t.Helper()
		mustKubectl(t, "", "label deployment web -n "+ns+" by="+value+" --overwrite")
		testwait.UntilNil(t, "an edit arrives", fieldShows([]string{member}, objectName{"apps/v1", "Deployment", ns, "web"}, "metadata.labels.by", value))
	}
	pushInstead(t, member)
	edited("push")
	same("pushed to")

	started := make(chan error, 1)
	go func() { started <- sharedWorld.lab.StartComponent(t.Context(), "agent/"+member) }() // it waits for a link to the hub
	testwait.UntilNil(t, "the agent in the member is there", func(context.Context) error {
		if log := fileTail(filepath.Join(sharedWorld.lab.Dir(), "logs", "agent-"+member+".log")); !strings.Contains(log, "waiting for its lease to end") {
			return errors.New("the output is: " + log)
		}
		return nil
	})
	edited("push-beside-pull")
	if err := clusterCondition(member, "Pushed", "True AgentWorks")(t.Context()); err != nil {
		t.Errorf("the agent in the member is to stand by: %s", err)
	}
	setMode(t, member, v1alpha1.ModePull)
	testwait.UntilNil(t, "the hub's agent is gone", clusterCondition(member, "Pushed", "False CredentialsNotUsed"))
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	edited("pull")
	same("pulled again")

	setMode(t, member, v1alpha1.ModePush)
	testwait.UntilNil(t, "the hub's agent stands by", clusterCondition(member, "Pushed", "True StandsBy"))
	edited("pull-beside-push")
	if err := sharedWorld.lab.KillComponent(t.Context(), "agent/"+member); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "the hub's agent takes over", clusterCondition(member, "Pushed", "True AgentWorks"))
	edited("push-again")
	same("after all that")
}

// TestAMemberThatHangsDelaysNoOther: one is dead and one hangs, at the start of the hub
// too.
func TestAMemberThatHangsDelaysNoOther(t *testing.T) {
	ns := createNamespace(t, "push-hang")
	pushInstead(t, "member2")
	pushInstead(t, "member3")
	hangMember(t, "member2")
	restartHub(t)
	begin := time.Now()
	pushedTo(t, ns, "member2,member3", "1")
	testwait.UntilNilWithin(t, 10*time.Second, "the other one gets what is placed", twoPods(sharedWorld.clients["member3"], ns))
	t.Logf("the other one has what is placed after %s", time.Since(begin).Round(100*time.Millisecond))
	testwait.UntilNil(t, "it is said of the one that hangs", clusterCondition("member2", "Pushed", "False MemberUnreachable"))
	expectOutput(t, "explain", atollOn(t, "explain", "deployment/web", "-n", ns, "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")), "the agent that the hub runs for the cluster: MemberUnreachable")
}

// hangMember stops a member's process until the test ends, and lets it go on then.
func hangMember(t *testing.T, member string) {
	t.Helper()
	hangIn(t, sharedWorld.lab, member)
}

// hangIn stops a member's process of a lab until it is let go on, which is when the test ends at
// the latest.
func hangIn(t *testing.T, l *lab.Lab, member string) (goOn func()) {
	t.Helper()
	status, err := l.ReadStatus(t.Context())
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
