package demo

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The members and their regions, in order.
var (
	memberNames   = []string{"member1", "member2", "member3"}
	memberRegions = []string{"eu", "us", "ap"}
)

// Limits for the steps of the story on a slow machine.
const (
	quickLimit      = 15 * time.Second
	slowLimit       = 60 * time.Second
	lostMemberLimit = 90 * time.Second // a lost member is noticed after 40 s at the latest
)

// story plays one act after the other; the first failing step ends it.
type story struct {
	*storyTerminal
	*demoClusters
}

// runCommand shows a command as a person types it, runs it, and shows its output.
func (s *story) runCommand(ctx context.Context, program string, args ...string) error {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if strings.ContainsAny(a, " {}") {
			quoted[i] = "'" + a + "'"
		}
	}
	s.printCommand(program + " " + strings.Join(quoted, " "))
	out, err := s.runOnHub(ctx, program, args...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		s.printLine("    %s", s.withColour(ansiDim, strings.TrimRight(line, "\n")))
	}
	return nil
}

func (s *story) playActs(ctx context.Context) error {
	for _, act := range []func(context.Context) error{s.applyHelloAct, s.applyShopAct, s.scaleAct, s.overrideAct, s.moveAct, s.loseMemberAct} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) applyHelloAct(ctx context.Context) error {
	s.printTitle("An unmodified manifest. The hub's default placement sends it to every cluster.")
	if err := s.runCommand(ctx, "kubectl", "apply", "-f", "hello/hello.yaml"); err != nil {
		return err
	}
	for _, m := range memberNames {
		if err := s.waitStep(ctx, "hello is healthy in "+m, slowLimit, s.helloRuns(m)); err != nil {
			return err
		}
	}
	return s.runCommand(ctx, "kubectl", "rollout", "status", "deployment/hello", "-n", helloNamespace, "--timeout=30s")
}

func (s *story) applyShopAct(ctx context.Context) error {
	s.printTitle("A shop, applied once, to the hub. The policy names two clusters.")
	if err := s.runCommand(ctx, "kubectl", "apply", "-f", "shop/1-namespace.yaml", "-f", "shop/2-voucher-crd.yaml"); err != nil {
		return err
	}
	if err := s.runCommand(ctx, "kubectl", "wait", "--for=condition=Established", "crd/vouchers.shop.example", "--timeout=30s"); err != nil {
		return err
	}
	if err := s.runCommand(ctx, "kubectl", "apply", "-f", "shop/3-policy.yaml", "-f", "shop/4-shop.yaml"); err != nil {
		return err
	}
	for _, m := range memberNames[:2] {
		if err := s.waitStep(ctx, "the whole shop is healthy in "+m, slowLimit, s.shopRuns(m, 3)); err != nil {
			return err
		}
	}
	if err := s.waitStep(ctx, "the hub shows it, too", quickLimit, allChecks(s.bundleReady(2), s.hubShowsWeb())); err != nil {
		return err
	}
	if err := s.runCommand(ctx, "kubectl", "rollout", "status", "deployment/web", "-n", shopNamespace, "--timeout=30s"); err != nil {
		return err
	}
	return s.printTable(ctx, s.out, memberNames)
}

func (s *story) scaleAct(ctx context.Context) error {
	s.printTitle("Scale it, as on one cluster.")
	if err := s.runCommand(ctx, "kubectl", "scale", "deployment/web", "-n", shopNamespace, "--replicas=5"); err != nil {
		return err
	}
	return s.waitStep(ctx, "5 healthy replicas in member1 and in member2", slowLimit, allChecks(s.shopRuns("member1", 5), s.shopRuns("member2", 5), s.hubShowsWeb()))
}

func (s *story) overrideAct(ctx context.Context) error {
	s.printTitle("Clusters in the US pull their images from nearby.")
	if err := s.runCommand(ctx, "kubectl", "apply", "-f", "later/us-registry.yaml"); err != nil {
		return err
	}
	if err := s.waitStep(ctx, "member2 (us) runs images of registry.us.example", slowLimit, s.imageIsFrom("member2", "registry.us.example")); err != nil {
		return err
	}
	if err := s.waitStep(ctx, "member1 (eu) was left alone", quickLimit, s.imageIsFrom("member1", "registry.example")); err != nil {
		return err
	}
	return s.waitStep(ctx, "both are healthy", slowLimit, allChecks(s.shopRuns("member1", 5), s.shopRuns("member2", 5), s.bundleReady(2)))
}

func (s *story) moveAct(ctx context.Context) error {
	s.printTitle("Move the shop from member1 to member3: one attribute. The new place comes first.")
	watch, err := s.watchHealth(ctx, memberNames)
	if err != nil {
		return err
	}
	defer watch.cancel()
	const patch = `{"spec":{"placement":{"clusterAffinity":{"clusterNames":["member2","member3"]}}}}`
	if err := s.runCommand(ctx, "kubectl", "patch", "propagationpolicy", "shop", "-n", shopNamespace, "--type=merge", "-p", patch); err != nil {
		return err
	}
	if err := s.waitStep(ctx, "the shop is healthy in member3", slowLimit, s.shopRuns("member3", 5)); err != nil {
		return err
	}
	if err := s.waitStep(ctx, "and has left member1", slowLimit, allChecks(s.shopGone("member1"), s.bundleReady(2))); err != nil {
		return err
	}
	summary, wrong := watch.stop()
	if err := s.reportFact("never fewer healthy replicas than before ("+summary+")", wrong); err != nil {
		return err
	}
	return s.printTable(ctx, s.out, memberNames)
}

func (s *story) loseMemberAct(ctx context.Context) error {
	s.printTitle("Kill member2 with SIGKILL, and continue to work.")
	before, err := s.webUID(ctx, "member2")
	if err != nil {
		return err
	}
	s.printCommand("atoll-lab kill member2")
	if err := s.lab.KillComponent(ctx, "member2"); err != nil {
		return err
	}
	if err := s.waitStep(ctx, "the hub notices", lostMemberLimit, s.clusterReadyIs("member2", false)); err != nil {
		return err
	}
	if err := s.runCommand(ctx, "kubectl", "scale", "deployment/web", "-n", shopNamespace, "--replicas=6"); err != nil {
		return err
	}
	if err := s.waitStep(ctx, "member3 follows without waiting for member2", slowLimit, s.shopRuns("member3", 6)); err != nil {
		return err
	}
	s.printCommand("atoll-lab start member2")
	if err := s.lab.StartComponent(ctx, "member2"); err != nil {
		return err
	}
	if err := s.waitStep(ctx, "member2 is back", slowLimit, s.clusterReadyIs("member2", true)); err != nil {
		return err
	}
	if err := s.waitStep(ctx, "and has caught up", slowLimit, allChecks(s.shopRuns("member2", 6), s.bundleReady(2), s.hubShowsWeb())); err != nil {
		return err
	}
	after, err := s.webUID(ctx, "member2")
	if err != nil {
		return err
	}
	wrong := ""
	if after != before {
		wrong = fmt.Sprintf("web in member2 is another object now: %s, and was %s", after, before)
	}
	if err := s.reportFact("nothing was replaced there", wrong); err != nil {
		return err
	}
	return s.printTable(ctx, s.out, memberNames)
}
