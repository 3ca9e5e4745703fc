package demo

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The cast. The regions are given to them in this order.
var (
	members = []string{"member1", "member2", "member3"}
	regions = []string{"eu", "us", "ap"}
)

// How long the parts of the story may take on a slow machine.
const (
	quick  = 15 * time.Second
	slow   = 60 * time.Second
	silent = 90 * time.Second // a lost member is noticed after 40 s at the latest
)

// story tells one act after the other; the first step that does not come true ends
// it.
type story struct {
	*stage
	*world
}

// do shows a command as a person would type it, runs it, and shows what it printed.
func (s *story) do(ctx context.Context, program string, args ...string) error {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if strings.ContainsAny(a, " {}") {
			quoted[i] = "'" + a + "'"
		}
	}
	s.typed(program + " " + strings.Join(quoted, " "))
	out, err := s.run(ctx, program, args...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		s.say("    %s", s.paint(dim, strings.TrimRight(line, "\n")))
	}
	return nil
}

func (s *story) tell(ctx context.Context) error {
	for _, act := range []func(context.Context) error{s.apply, s.scale, s.override, s.move, s.lose} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) apply(ctx context.Context) error {
	s.title("A shop, applied once, to the hub. The policy names two clusters.")
	if err := s.do(ctx, "kubectl", "apply", "-f", "shop/1-namespace.yaml", "-f", "shop/2-voucher-crd.yaml"); err != nil {
		return err
	}
	if err := s.do(ctx, "kubectl", "wait", "--for=condition=Established", "crd/vouchers.shop.example", "--timeout=30s"); err != nil {
		return err
	}
	if err := s.do(ctx, "kubectl", "apply", "-f", "shop/3-shop.yaml", "-f", "shop/4-policy.yaml"); err != nil {
		return err
	}
	for _, m := range members[:2] {
		if err := s.step(ctx, "the whole shop is healthy in "+m, slow, s.shopRuns(m, 3)); err != nil {
			return err
		}
	}
	if err := s.step(ctx, "the hub says so, too", quick, all(s.bundleReady(2), s.hubShowsWeb())); err != nil {
		return err
	}
	if err := s.do(ctx, "kubectl", "rollout", "status", "deployment/web", "-n", namespace, "--timeout=30s"); err != nil {
		return err
	}
	return s.printTable(ctx, s.out, members)
}

func (s *story) scale(ctx context.Context) error {
	s.title("Scale it, as on one cluster.")
	if err := s.do(ctx, "kubectl", "scale", "deployment/web", "-n", namespace, "--replicas=5"); err != nil {
		return err
	}
	return s.step(ctx, "5 healthy replicas in member1 and in member2", slow, all(s.shopRuns("member1", 5), s.shopRuns("member2", 5), s.hubShowsWeb()))
}

func (s *story) override(ctx context.Context) error {
	s.title("Clusters in the US pull their images from nearby.")
	if err := s.do(ctx, "kubectl", "apply", "-f", "later/us-registry.yaml"); err != nil {
		return err
	}
	if err := s.step(ctx, "member2 (us) runs images of registry.us.example", slow, s.image("member2", "registry.us.example")); err != nil {
		return err
	}
	if err := s.step(ctx, "member1 (eu) was left alone", quick, s.image("member1", "registry.example")); err != nil {
		return err
	}
	return s.step(ctx, "both are healthy", slow, s.bundleReady(2))
}

func (s *story) move(ctx context.Context) error {
	s.title("Move the shop from member1 to member3: one attribute. The new place comes first.")
	watch, err := s.watchHealth(ctx, members)
	if err != nil {
		return err
	}
	defer watch.cancel()
	const patch = `{"spec":{"placement":{"clusterAffinity":{"clusterNames":["member2","member3"]}}}}`
	if err := s.do(ctx, "kubectl", "patch", "propagationpolicy", "shop", "-n", namespace, "--type=merge", "-p", patch); err != nil {
		return err
	}
	if err := s.step(ctx, "the shop is healthy in member3", slow, s.shopRuns("member3", 5)); err != nil {
		return err
	}
	if err := s.step(ctx, "and has left member1", slow, all(s.shopGone("member1"), s.bundleReady(2))); err != nil {
		return err
	}
	summary, wrong := watch.stop()
	if err := s.fact("never fewer healthy replicas than before ("+summary+")", wrong); err != nil {
		return err
	}
	return s.printTable(ctx, s.out, members)
}

func (s *story) lose(ctx context.Context) error {
	s.title("Kill member2 with SIGKILL, and go on working meanwhile.")
	before, err := s.webUID(ctx, "member2")
	if err != nil {
		return err
	}
	s.typed("atoll-lab kill member2")
	if err := s.lab.Kill(ctx, "member2"); err != nil {
		return err
	}
	if err := s.step(ctx, "the hub notices", silent, s.readyIs("member2", false)); err != nil {
		return err
	}
	if err := s.do(ctx, "kubectl", "scale", "deployment/web", "-n", namespace, "--replicas=6"); err != nil {
		return err
	}
	if err := s.step(ctx, "member3 follows without waiting for member2", slow, s.shopRuns("member3", 6)); err != nil {
		return err
	}
	s.typed("atoll-lab start member2")
	if err := s.lab.Start(ctx, "member2"); err != nil {
		return err
	}
	if err := s.step(ctx, "member2 is back", slow, s.readyIs("member2", true)); err != nil {
		return err
	}
	if err := s.step(ctx, "and has caught up", slow, all(s.shopRuns("member2", 6), s.bundleReady(2), s.hubShowsWeb())); err != nil {
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
	if err := s.fact("nothing was made anew there", wrong); err != nil {
		return err
	}
	return s.printTable(ctx, s.out, members)
}
