package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilexec "k8s.io/client-go/util/exec"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/phrase"
)

// The exit codes, as those of `atoll rollout status --wait`. 0: all that can be replaced has left; 1: the command failed.
const (
	exitCannotLeave = 3
	exitPerson      = 4
	exitTimeout     = 5
)

// followEvery is how often the command reads the progress.
const followEvery = 500 * time.Millisecond

// follower follows a drain.
type follower struct {
	client *client.Connection
	name   string
	uid    types.UID
	out    io.Writer
	// shown is the last progress.
	shown string
}

// followUntilEnd prints the progress until the drain ends or waits for a person.
func (f *follower) followUntilEnd(ctx context.Context, generation int64, timeout time.Duration) error {
	begin := time.Now()
	for {
		if ended, err := f.readProgress(ctx, generation); ended {
			return err
		}
		if timeout > 0 && time.Since(begin) > timeout {
			return utilexec.CodeExitError{Err: fmt.Errorf("cluster %s is not empty within %s, and the hub goes on: %s", f.name, phrase.FormatDuration(timeout), f.shown), Code: exitTimeout}
		}
		if !pause.WaitFor(ctx, followEvery) {
			return fmt.Errorf("this command was ended, and the drain goes on: the same command follows it again, `atoll uncordon %s` ends it", f.name)
		}
	}
}

// readProgress reads how far the drain is, and prints it if it is news. Once the drain ended, its error is how; nil is done.
func (f *follower) readProgress(ctx context.Context, generation int64) (ended bool, err error) {
	now, err := client.Get[v1alpha1.Cluster](ctx, f.client, client.Clusters, "", f.name)
	switch {
	case client.HasLeft(f.uid, now, err):
		return true, fmt.Errorf("cluster %s has left the fleet", f.name)
	case apierrors.IsForbidden(err):
		return true, err
	case err != nil:
		err = f.printNews("it is asked again: " + phrase.EscapeLine(err.Error()))
		return err != nil, err
	case now.Spec.Removal != nil:
		return true, fmt.Errorf("cluster %[1]s is being removed: `atoll remove %[1]s` follows that", f.name)
	case now.Spec.FindDrain() == nil:
		return true, fmt.Errorf("the drain of cluster %s was ended by a person", f.name)
	}
	if ended, err = f.showProgress(now, generation); ended {
		err = errors.Join(f.printRemaining(ctx, now), err)
	}
	return ended, err
}

// showProgress prints the progress if it is news. Its error is the end of a drain that is not done.
func (f *follower) showProgress(now *v1alpha1.Cluster, generation int64) (ended bool, err error) {
	reported := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ClusterDraining)
	if reported == nil || reported.ObservedGeneration < generation {
		return false, nil
	}
	message := phrase.EscapeLine(reported.Message)
	if err := f.printNews(reported.Reason + ": " + message); err != nil {
		return true, err
	}
	if reported.Status == metav1.ConditionFalse {
		return true, nil
	}
	switch reason := atoll.Reason(reported.Reason); reason {
	case atoll.ReasonCannotLeave:
		return true, utilexec.CodeExitError{Err: fmt.Errorf("cluster %s is not empty: %s", f.name, message), Code: exitCannotLeave}
	case atoll.ReasonWaitsForConfirmation, atoll.ReasonHubHolds:
		return true, utilexec.CodeExitError{Err: fmt.Errorf("the drain of cluster %s waits for a person: %s", f.name, message), Code: exitPerson}
	}
	return false, nil
}

// printNews prints a line that differs from the last one.
func (f *follower) printNews(text string) error {
	if text == f.shown {
		return nil
	}
	f.shown = text
	_, err := fmt.Fprintln(f.out, text)
	return err
}

// printRemaining lists the Bundles that are in the cluster still, and why, as far as the user may read rows.
func (f *follower) printRemaining(ctx context.Context, now *v1alpha1.Cluster) error {
	if d := now.Status.Drain; d == nil || d.Bundles == d.Left {
		return nil
	}
	rows, err := client.ListRows(ctx, f.client, "", func(r client.Row) bool {
		return r.Cluster == f.name && r.Spec.UID == string(f.uid) && !r.Ref.IsNamespaceRef()
	})
	if apierrors.IsForbidden(err) {
		_, err = fmt.Fprintln(f.out, "you may not list rows (targetslices): `atoll explain` of a Bundle has its reason")
		return err
	}
	if err != nil || len(rows) == 0 {
		return err
	}
	w := tabwriter.NewWriter(f.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REMAINS\tREASON\tWHY")
	for _, r := range rows {
		name, reason := r.Bundle, atoll.ParseRowReason(r.Spec.Reason)
		if r.Namespace != "" {
			name = r.Namespace + "/" + name
		}
		text := reason.Text
		if reason.Plan != "" {
			text = "plan " + reason.Plan + ": " + text
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, reason.Reason, phrase.EscapeLine(text))
	}
	return w.Flush()
}
