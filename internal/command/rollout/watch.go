package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	utilexec "k8s.io/client-go/util/exec"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/phrase"
)

// The exit codes of --wait. 0: the rollout is done; 1: the command failed.
const (
	exitFailed  = 3
	exitPerson  = 4
	exitTimeout = 5
)

// watchAgain is how long the command waits before it watches again.
const watchAgain = time.Second

// judgeTime is how long the command ignores a failure that is older than the last change of the template: the hub reads a
// change within seconds. Then the failure counts, since a change may concern no cluster.
const judgeTime = 30 * time.Second

// follower shows each change of a rollout.
type follower struct {
	client   *client.Connection
	of       client.Object
	template *client.Object // nil: the argument names the Bundle
	argument string
	out      io.Writer
	// until ends it with an error by which the command exits; nil: it follows until its context ends.
	until func(ctx context.Context, b *v1alpha1.Bundle) (ended bool, err error)
	// shown is the last text; lines of it are on the terminal.
	shown string
	lines int
	// isUnseen: the clusters have not observed the present template yet, as far as its status shows it.
	isUnseen bool
	// began is when the command began to follow.
	began time.Time
}

func followRollout(cmd *cobra.Command, flags *client.ConnectionFlags, argument string, untilEnd bool, timeout time.Duration) error {
	c, bundle, of, err := findBundle(cmd.Context(), flags, argument)
	if err != nil {
		return err
	}
	named, err := c.ParseObject(cmd.Context(), argument)
	if err != nil {
		return err
	}
	if c, err = c.WithoutTimeout(); err != nil {
		return err
	}
	f := &follower{client: c, of: of, argument: argument, out: cmd.OutOrStdout(), began: time.Now()}
	if named.Resource != of.Resource {
		f.template = &named
	}
	if untilEnd {
		f.until = f.findEnd
	}
	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	err = f.followBundle(ctx, bundle)
	var exit utilexec.CodeExitError
	if err == nil || errors.As(err, &exit) || ctx.Err() == nil || cmd.Context().Err() != nil {
		return err
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("%s is not done within %s", argument, phrase.FormatDuration(timeout)), Code: exitTimeout}
}

// followBundle shows the Bundle and its changes. A watch that ends begins again.
func (f *follower) followBundle(ctx context.Context, bundle *v1alpha1.Bundle) error {
	for {
		ended, err := f.showState(ctx, bundle)
		if ended || err != nil {
			return err
		}
		if ended, err = f.followWatch(ctx, bundle); ended || isFinal(err) {
			return f.client.ExplainError(err)
		}
		if !pause.WaitFor(ctx, watchAgain) {
			return contextEnd(ctx)
		}
		next, err := client.Get[v1alpha1.Bundle](ctx, f.client, f.of.Resource, f.of.Namespace, f.of.Name)
		switch {
		case ctx.Err() != nil:
			return contextEnd(ctx)
		case err == nil:
			bundle = next
		case apierrors.IsNotFound(err):
			return err
		}
	}
}

// isFinal reports whether another watch would end the same way.
func isFinal(err error) bool {
	var exit utilexec.CodeExitError
	return errors.As(err, &exit) || errors.Is(err, errBundleGone) || errors.Is(err, context.DeadlineExceeded) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

var errBundleGone = errors.New("the Bundle is deleted")

// contextEnd returns the error of a context whose time is over; nil for one that a person ended.
func contextEnd(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	return nil
}

func (f *follower) followWatch(ctx context.Context, last *v1alpha1.Bundle) (ended bool, err error) {
	w, err := f.client.Dynamic.Resource(f.of.Resource).Namespace(f.of.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + f.of.Name, ResourceVersion: last.ResourceVersion})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, contextEnd(ctx)
		case <-f.lookAgain():
			ended, err = f.findEnd(ctx, last)
		case e, open := <-w.ResultChan():
			if !open || e.Type == watch.Error {
				return false, nil
			}
			if last, err = readBundle(e); err == nil {
				ended, err = f.showState(ctx, last)
			}
		}
		if ended || err != nil {
			return ended, err
		}
	}
}

// lookAgain returns a channel of the next look at the template, which changes without its Bundle; nil: no look is needed.
func (f *follower) lookAgain() <-chan time.Time {
	if !f.isUnseen {
		return nil
	}
	return time.After(watchAgain)
}

// readBundle returns the Bundle of a change.
func readBundle(e watch.Event) (*v1alpha1.Bundle, error) {
	u, is := e.Object.(*unstructured.Unstructured)
	if !is || e.Type == watch.Deleted {
		return nil, errBundleGone
	}
	bundle := &v1alpha1.Bundle{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, bundle); err != nil {
		return nil, fmt.Errorf("read a change: %w", err)
	}
	return bundle, nil
}

// showState shows a state that differs from the last one: in its place on a terminal, and as a line elsewhere.
func (f *follower) showState(ctx context.Context, bundle *v1alpha1.Bundle) (ended bool, err error) {
	terminal, isTerminal := f.out.(interface{ ClearLines(n int) error })
	isTerminal = isTerminal && output.IsTerminal(f.out)
	text := formatLine(bundle)
	if isTerminal {
		text = formatBars(f.argument, bundle)
	}
	if text != f.shown {
		if isTerminal && f.lines > 0 {
			if err := terminal.ClearLines(f.lines); err != nil {
				return false, err
			}
		}
		if _, err := io.WriteString(f.out, text); err != nil {
			return false, err
		}
		f.shown, f.lines = text, strings.Count(text, "\n")
	}
	if f.until == nil {
		return false, nil
	}
	return f.until(ctx, bundle)
}

// findEnd reports whether the rollout is done, failed, or waits for a person.
func (f *follower) findEnd(ctx context.Context, bundle *v1alpha1.Bundle) (ended bool, err error) {
	f.isUnseen = false
	reason, message := waitOf(bundle)
	if hasPersonActed(bundle, reason, time.Now()) {
		return false, nil // the hub has not judged it yet, and writes another status then
	}
	switch reason {
	case "", atoll.ReasonWaitsForCluster:
		isLatest, err := f.isLatest(ctx)
		f.isUnseen = err == nil && !isLatest
		return isLatest, err
	case atoll.ReasonStageFailed, atoll.ReasonGateFailed, atoll.ReasonRolledBack, atoll.ReasonRollbackFailed, atoll.ReasonTooManyUnhealthy, atoll.ReasonFailed, atoll.ReasonDegraded:
		if f.isUnseen = f.isFailureOfBefore(ctx, bundle); f.isUnseen {
			return false, nil
		}
		return true, utilexec.CodeExitError{Err: fmt.Errorf("%s failed: %s: %s", f.argument, reason, message), Code: exitFailed}
	case atoll.ReasonChangesFrozen, atoll.ReasonDispatchingSuspended, atoll.ReasonSchedulingSuspended:
		if f.isUnseen = f.isHaltOver(ctx, bundle, reason); f.isUnseen {
			return false, nil
		}
		return true, f.newPersonError(reason, message)
	case atoll.ReasonRolloutPaused, atoll.ReasonWaitsForApproval, atoll.ReasonWaitsForConfirmation, atoll.ReasonDependencyCycle, atoll.ReasonDisruptionBudgetTooStrict:
		return true, f.newPersonError(reason, message)
	}
	return false, nil
}

// newPersonError returns the error by which the command ends where a person must act.
func (f *follower) newPersonError(reason atoll.Reason, message string) error {
	return utilexec.CodeExitError{Err: fmt.Errorf("%s waits for a person: %s: %s; %s must act", f.argument, reason, message, atoll.ActorOf(reason)), Code: exitPerson}
}

// waitOf returns for what the rollout waits. A rollout that has ended waits for nothing, whatever fails later.
func waitOf(bundle *v1alpha1.Bundle) (reason atoll.Reason, message string) {
	if r := bundle.Status.Rollout; r != nil && (r.Reason != "" || r.CurrentStage == "" && r.PausedSince == nil && r.PausedBy == "") {
		return atoll.Reason(r.Reason), phrase.EscapeLine(r.Message)
	}
	if w := bundle.Status.Wait; w != nil {
		return atoll.Reason(w.Reason), phrase.EscapeLine(bundle.Status.WaitsFor)
	}
	return "", ""
}

// isLatest reports whether the clusters have observed the present template, as far as its status shows it.
func (f *follower) isLatest(ctx context.Context) (bool, error) {
	if f.template == nil {
		return true, nil
	}
	t, err := f.readTemplate(ctx)
	if err != nil {
		return false, err
	}
	observed, has, _ := unstructured.NestedInt64(t.Object, "status", "observedGeneration")
	return !has || observed >= t.GetGeneration(), nil
}

func (f *follower) readTemplate(ctx context.Context) (*unstructured.Unstructured, error) {
	return f.client.Dynamic.Resource(f.template.Resource).Namespace(f.template.Namespace).Get(ctx, f.template.Name, metav1.GetOptions{})
}

// isFailureOfBefore reports whether the template changed after its rollout failed, so that the hub may not have read the change yet.
func (f *follower) isFailureOfBefore(ctx context.Context, bundle *v1alpha1.Bundle) bool {
	since := waitBegan(bundle)
	if f.template == nil || since.IsZero() || time.Since(f.began) > judgeTime {
		return false
	}
	t, err := f.readTemplate(ctx)
	return err == nil && slices.ContainsFunc(t.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == "" && e.Time != nil && e.Time.After(since)
	})
}

// waitBegan returns when that began for which the rollout waits, by waitOf; zero: it is unknown.
func waitBegan(bundle *v1alpha1.Bundle) time.Time {
	if r := bundle.Status.Rollout; r != nil && r.Reason != "" && r.Since != nil {
		return r.Since.Time
	} else if w := bundle.Status.Wait; w != nil && (r == nil || r.Reason == "") {
		return w.Since.Time
	}
	return time.Time{}
}

// formatLine returns a rollout in one line.
func formatLine(bundle *v1alpha1.Bundle) string {
	r := bundle.Status.Rollout
	if r == nil {
		return fmt.Sprintf("%d/%d clusters updated%s\n", bundle.Status.Clusters.Updated, bundle.Status.Clusters.Desired, formatReason(bundle))
	}
	var stages []string
	for _, s := range r.Stages {
		stages = append(stages, fmt.Sprintf("%s %d/%d%s", s.Name, s.Updated, s.Clusters, formatTrouble(s)))
	}
	return strings.Join(stages, ", ") + formatReason(bundle) + "\n"
}

func formatTrouble(s v1alpha1.StageStatus) (out string) {
	for _, n := range []struct {
		count int32
		what  string
	}{{s.Changing, "changing"}, {s.Failed, "failed"}, {s.Disconnected, "disconnected"}, {s.Suspended, "suspended"}} {
		if n.count > 0 {
			out += fmt.Sprintf(" (%d %s)", n.count, n.what)
		}
	}
	return out
}

func formatReason(bundle *v1alpha1.Bundle) string {
	reason, message := waitOf(bundle)
	if reason == "" {
		return ""
	}
	return fmt.Sprintf("; %s: %s", reason, message)
}

// barWidth is the width of the bar of a stage, in characters.
const barWidth = 24

// formatBars returns a rollout with a bar for each stage.
func formatBars(argument string, bundle *v1alpha1.Bundle) string {
	r := bundle.Status.Rollout
	if r == nil || len(r.Stages) == 0 {
		return formatRollout(argument, bundle)
	}
	var b strings.Builder
	width := 0
	for _, s := range r.Stages {
		width = max(width, len(s.Name))
	}
	for _, s := range r.Stages {
		mark := " "
		if s.Name == r.CurrentStage {
			mark = ">"
		}
		fmt.Fprintf(&b, "%s %-*s %s %d/%d%s\n", mark, width, s.Name, formatBar(s), s.Updated, s.Clusters, formatTrouble(s))
	}
	writeGates(&b, r.Gates)
	if reason, message := waitOf(bundle); reason != "" {
		fmt.Fprintf(&b, "%s: %s\n", reason, message)
	} else if r.CurrentStage == "" {
		b.WriteString("complete\n")
	}
	return b.String()
}

// formatBar returns the bar of a stage: updated, failed, changing, and what waits.
func formatBar(s v1alpha1.StageStatus) string {
	out, done, used := "", int32(0), 0
	for _, part := range []struct {
		count int32
		sign  string
	}{{s.Updated, "█"}, {s.Failed, "×"}, {s.Changing, "▒"}} {
		done += part.count
		until := int(done) * barWidth / max(1, int(s.Clusters))
		out += strings.Repeat(part.sign, max(0, until-used))
		used = max(used, until)
	}
	return out + strings.Repeat("░", max(0, barWidth-used))
}
