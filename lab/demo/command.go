// Package demo is the tour that `make demo` gives: a hub and three real clusters on this
// machine, a shop, and the changes that people make to it.
//
// Contract: every claim is checked on the hub or in the members, with a deadline. A failed
// check prints its reason and ends the command with an error. Shown commands run exactly as
// shown, with the lab's kubeconfig. Nothing outside the directory is written, and no
// process outlives the command.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/lab"
)

// NewCommand returns the command `atoll-lab demo`.
func NewCommand() *cobra.Command {
	var dir string
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A tour: a hub, three clusters and a shop that is applied, scaled, moved, lost and found",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), newStoryTerminal(cmd.OutOrStdout()), dir, once)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", filepath.Join(".lab", "demo"), "directory of the demo's lab; one that an earlier demo left there is ended and deleted")
	cmd.Flags().BoolVar(&once, "once", false, "clean up at the end instead of waiting for Ctrl-C")
	return cmd
}

func runDemo(ctx context.Context, s *storyTerminal, dir string, once bool) (err error) {
	if old, err := lab.OpenExisting(dir); err == nil {
		s.printLine("ending the demo that %s still holds", dir)
		if err := old.Delete(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	s.printTitle("A hub and three real clusters: etcd, API server, controllers and scheduler each.")
	l, err := lab.BringUp(ctx, lab.Options{Dir: dir, Members: len(memberNames), Regions: memberRegions, HubArgs: []string{"--default-placement=All"}, Progress: indentedWriter{s}})
	defer func() { err = errors.Join(err, cleanUp(ctx, s, dir, err == nil || isInterrupted(err))) }()
	if err == nil {
		err = playStory(ctx, s, l)
	}
	switch {
	case isInterrupted(err) && !once:
		return nil
	case err != nil && once:
		return err
	case err != nil:
		s.printLine("\nThe demo ends here: %v\nIts lab stays up to be looked at: atoll-lab status --dir %s. Press Ctrl-C to end it.", err, dir)
	default:
		s.printLine("\n%s", s.withColour(ansiGreen, fmt.Sprintf("All %d steps came true, in %.0f s.", s.steps, time.Since(began).Seconds())))
	}
	if once {
		return nil
	}
	if err == nil {
		printConsole(ctx, s, l)
		printNextSteps(s, l)
	}
	<-ctx.Done()
	return err
}

// playStory writes the manifests into the lab's directory and plays the story.
func playStory(ctx context.Context, s *storyTerminal, l *lab.Lab) error {
	if err := os.CopyFS(l.Dir(), manifests); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write the demo's manifests: %w", err)
	}
	w, err := newDemoClusters(l, l.Dir(), memberNames)
	if err != nil {
		return err
	}
	st := &story{storyTerminal: s, demoClusters: w}
	for _, m := range memberNames {
		if err := s.waitStep(ctx, m+" has joined and is Ready", quickLimit, w.clusterReadyIs(m, true)); err != nil {
			return err
		}
	}
	return st.playActs(ctx)
}

// cleanTime bounds the end of the lab, which happens after ctx has ended.
const cleanTime = 30 * time.Second

// cleanUp ends the lab and deletes it after a successful story. Otherwise the logs stay
// until the next demo.
func cleanUp(ctx context.Context, s *storyTerminal, dir string, well bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	l, err := lab.OpenExisting(dir)
	if err != nil {
		return nil
	}
	s.printLine("\nending the lab")
	end := l.Delete
	if !well {
		s.printLine("its logs stay in %s", filepath.Join(l.Dir(), "logs"))
		end = l.StopAll
	}
	if err := end(ctx); err != nil {
		return fmt.Errorf("end the demo's lab: %w", err)
	}
	return nil
}

// linkTime is how long the link to the console is good until it is used.
const linkTime = 10 * time.Minute

// printConsole prints a link that opens the console of the demo, signed in.
func printConsole(ctx context.Context, s *storyTerminal, l *lab.Lab) {
	s.printTitle("The same in a browser, once, for ten minutes. Later, atoll console opens it again.")
	link, err := consoleLink(ctx, l)
	if err != nil {
		s.printLine("  There is no link: %v", err)
		return
	}
	s.printLine("  %s", s.withColour(ansiCyan, link))
	s.printLine("  The browser warns of the certificate, whose authority belongs to the demo alone.")
}

// consoleLink has atoll make a link for the administrator of the demo's hub.
func consoleLink(ctx context.Context, l *lab.Lab) (string, error) {
	w := demoClusters{lab: l, files: l.Dir()}
	out, err := w.runOnHub(ctx, "atoll", "console", "--no-browser", "--lifetime", linkTime.String())
	return strings.TrimSpace(out), err
}

func printNextSteps(s *storyTerminal, l *lab.Lab) {
	self, err := os.Executable()
	if err != nil {
		self = "atoll-lab"
	}
	bin := filepath.Dir(self)
	s.printTitle("All of it stays up until you press Ctrl-C. In another terminal:")
	for _, line := range []string{
		fmt.Sprintf("export PATH=%s:$PATH KUBECONFIG=%s", bin, l.KubeconfigPath("hub")),
		"alias kubectl='atoll-lab kubectl'",
		"atoll get clusters",
		"atoll get rows -n shop",
		"atoll explain deployment/web -n shop",
		"atoll console",
		"kubectl get deployments,bundles -n shop",
		"kubectl --kubeconfig " + l.KubeconfigPath("member3") + " get pods -n shop",
		"kubectl annotate deployment/cart -n shop atoll.dev/clusters=member1 --overwrite",
		"atoll-lab cut member3 --dir " + l.Dir(),
	} {
		s.printCommand(line)
	}
}

// indentedWriter writes the lab's progress to the terminal.
type indentedWriter struct{ *storyTerminal }

// Write shows one or more lines.
func (i indentedWriter) Write(p []byte) (int, error) {
	i.printLine("  %s", i.withColour(ansiDim, string(p[:max(0, len(p)-1)])))
	return len(p), nil
}

// webUID returns the UID of the Deployment web in the cluster.
func (w *demoClusters) webUID(ctx context.Context, cluster string) (string, error) {
	d, err := w.kube[cluster].AppsV1().Deployments(shopNamespace).Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("%s: %w", cluster, err)
	}
	return string(d.UID), nil
}
