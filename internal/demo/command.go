// Package demo is the tour through Atoll that `make demo` gives: a hub and three
// real clusters on this machine, a shop, and what people do to one.
//
// Contract: everything that is claimed is checked, on the hub or in the members
// themselves, with a deadline, and says why when it does not come true; then the
// command fails. Commands that are shown are run as they are shown, with the lab's
// kubeconfig. Nothing outside the directory is written, and nothing goes on running
// when the command has ended.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/demo"
	"atoll.dev/atoll/internal/lab"
)

// NewCommand makes the command `atoll-lab demo`.
func NewCommand() *cobra.Command {
	var dir string
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A tour: a hub, three clusters and a shop that is applied, scaled, moved, lost and found",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), newStage(cmd.OutOrStdout()), dir, once)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", filepath.Join(".lab", "demo"), "directory of the demo's lab; one that an earlier demo left there is ended and deleted")
	cmd.Flags().BoolVar(&once, "once", false, "clean up at the end instead of waiting for Ctrl-C")
	return cmd
}

func run(ctx context.Context, s *stage, dir string, once bool) (err error) {
	if old, err := lab.Open(dir); err == nil {
		s.say("ending the demo that %s still holds", dir)
		if err := old.Delete(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	s.title("A hub and three real clusters: etcd, API server, controllers and scheduler each.")
	l, err := lab.Up(ctx, lab.Options{Dir: dir, Members: len(members), Regions: regions, Progress: indented{s}})
	defer func() { err = errors.Join(err, clean(ctx, s, dir, err == nil || interrupted(err))) }()
	if err == nil {
		err = begin(ctx, s, l)
	}
	switch {
	case interrupted(err) && !once:
		return nil
	case err != nil && once:
		return err
	case err != nil:
		s.say("\nThe demo ends here: %v\nIts lab stays up to be looked at: atoll-lab status --dir %s. Press Ctrl-C to end it.", err, dir)
	default:
		s.say("\n%s", s.paint(green, fmt.Sprintf("All %d steps came true, in %.0f s.", s.steps, time.Since(began).Seconds())))
	}
	if once {
		return nil
	}
	if err == nil {
		next(s, l)
	}
	<-ctx.Done()
	return err
}

// begin writes the manifests beside the lab and tells the story.
func begin(ctx context.Context, s *stage, l *lab.Lab) error {
	if err := os.CopyFS(l.Dir(), demo.Shop); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write the shop's manifests: %w", err)
	}
	w, err := newWorld(l, l.Dir(), members)
	if err != nil {
		return err
	}
	st := &story{stage: s, world: w}
	for _, m := range members {
		if err := s.step(ctx, m+" has joined and is Ready", quick, w.readyIs(m, true)); err != nil {
			return err
		}
	}
	return st.tell(ctx)
}

// cleanTime bounds the end of the lab, which happens after ctx has ended.
const cleanTime = 30 * time.Second

// clean ends the lab and, after a story that went well, deletes it. Otherwise what
// its processes logged stays until the next demo.
func clean(ctx context.Context, s *stage, dir string, well bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	l, err := lab.Open(dir)
	if err != nil {
		return nil
	}
	s.say("\nending the lab")
	end := l.Delete
	if !well {
		s.say("its logs stay in %s", filepath.Join(l.Dir(), "logs"))
		end = l.Down
	}
	if err := end(ctx); err != nil {
		return fmt.Errorf("end the demo's lab: %w", err)
	}
	return nil
}

func next(s *stage, l *lab.Lab) {
	self, err := os.Executable()
	if err != nil {
		self = "atoll-lab"
	}
	bin := filepath.Dir(self)
	s.title("All of it stays up until you press Ctrl-C. In another terminal:")
	for _, line := range []string{
		fmt.Sprintf("export PATH=%s:$PATH KUBECONFIG=%s", bin, l.Kubeconfig("hub")),
		"alias kubectl='atoll-lab kubectl'",
		"atoll get clusters",
		"atoll get rows -n shop",
		"atoll explain deployment/web -n shop",
		"kubectl get deployments,bundles -n shop",
		"kubectl --kubeconfig " + l.Kubeconfig("member3") + " get pods -n shop",
		"kubectl annotate deployment/cart -n shop atoll.dev/clusters=member1 --overwrite",
		"atoll-lab cut member3 --dir " + l.Dir(),
	} {
		s.typed(line)
	}
}

// indented passes the lab's progress on to the stage.
type indented struct{ *stage }

// Write shows one or more lines.
func (i indented) Write(p []byte) (int, error) {
	i.say("  %s", i.paint(dim, string(p[:max(0, len(p)-1)])))
	return len(p), nil
}

// webUID is the identity of the Deployment web in the cluster.
func (w *world) webUID(ctx context.Context, cluster string) (string, error) {
	d, err := w.kube[cluster].AppsV1().Deployments(namespace).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("%s: %w", cluster, err)
	}
	return string(d.UID), nil
}
