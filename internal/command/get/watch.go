package get

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/pause"
)

const (
	// againFirst is the pause before a watch that ended is requested again; it doubles up to
	// againMost.
	againFirst = 200 * time.Millisecond
	againMost  = 5 * time.Second
)

// watch watches from a version on, until ctx ends. An ended watch resumes, and where the hub no
// longer has that history, another list begins.
func (p *tablePrinter) watch(ctx context.Context, version string) error {
	c, err := p.client.WithoutTimeout()
	if err != nil {
		return err
	}
	told := false
	for again := againFirst; ; {
		version, err = p.resumeWatch(ctx, c, version)
		var said apierrors.APIStatus
		var out unwritable
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			told, again = false, againFirst
		case errors.As(err, &out):
			return out.error
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			version = ""
		case errors.As(err, &said) && isPermanentErrorStatus(said.Status().Code):
			return p.client.ExplainError(err)
		case !told:
			fmt.Fprintf(p.notes, "the watch of %s is requested again, until it is answered: %v\n", p.request.mapping.Resource.Resource, p.client.ExplainError(err))
			told = true
		}
		if !pause.WaitFor(ctx, again) {
			return nil
		}
		again = min(2*again, againMost)
	}
}

// resumeWatch watches until the watch ends. Without a version it begins with a list.
func (p *tablePrinter) resumeWatch(ctx context.Context, c *client.Connection, version string) (string, error) {
	if version == "" {
		var err error
		if version, err = p.relistAndPrintChanges(ctx); err != nil {
			return version, err
		}
	}
	return p.followWatch(ctx, c, version)
}

// unwritable is what was to be printed.
type unwritable struct{ error }

// isPermanentErrorStatus reports whether a new request cannot change the status.
func isPermanentErrorStatus(code int32) bool {
	return code >= 400 && code < 500 && code != 429 && code != 408
}

// followWatch follows a watch until it ends. It gives the version that it came to, and nil where it was
// answered and merely ended.
func (p *tablePrinter) followWatch(ctx context.Context, c *client.Connection, version string) (string, error) {
	body, err := p.addSelectors(p.newRequest(c, "")).Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", version).Stream(ctx)
	if err != nil {
		return version, err
	}
	defer body.Close()
	for events := json.NewDecoder(body); ; {
		var e metav1.WatchEvent
		if events.Decode(&e) != nil {
			return version, nil // it goes on from there
		}
		if e.Type == string(watch.Error) {
			return version, watchEndError(e.Object.Raw)
		}
		var of metav1.Table
		if err := json.Unmarshal(e.Object.Raw, &of); err != nil {
			return version, fmt.Errorf("read a change of %s: %w", p.request.mapping.Resource.Resource, err)
		}
		if e.Type != string(watch.Bookmark) {
			if err := p.printChange(ctx, &of, e.Type == string(watch.Deleted)); err != nil {
				return version, err
			}
		}
		version = cmp.Or(of.ResourceVersion, version)
	}
}

// watchEndError returns the error with which the watch ended, from the Status in its last event.
func watchEndError(raw []byte) error {
	var s metav1.Status
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	return &apierrors.StatusError{ErrStatus: s}
}

// printChange prints what changed, or is gone.
func (p *tablePrinter) printChange(ctx context.Context, of *metav1.Table, gone bool) error {
	if err := p.loadLocations(ctx); err != nil {
		return err
	}
	var t outputTable
	if err := p.frame.addRows(&t, of, p.where); err != nil {
		return err
	}
	err := p.printAndRecordRows(t)
	if gone {
		for _, r := range t.rows {
			delete(p.printed, r.rowKey())
		}
	}
	return err
}

// printAndRecordRows prints rows, and records that they were printed.
func (p *tablePrinter) printAndRecordRows(t outputTable) error {
	if len(t.rows) == 0 {
		return nil
	}
	begins := p.widths == nil
	t.headings = p.frame.headingCells()
	p.recordPrintedCells(t)
	if err := p.printRows(t, begins); err != nil {
		return unwritable{err}
	}
	return nil
}

// recordPrintedCells stores what was printed of objects.
func (p *tablePrinter) recordPrintedCells(t outputTable) {
	if p.printed == nil {
		p.printed = map[string][]string{}
	}
	for _, r := range t.rows {
		p.printed[r.rowKey()] = p.frame.cellsWithoutAge(r.cells)
	}
}

// relistAndPrintChanges lists the objects again, and prints the objects that differ from what was
// printed last.
func (p *tablePrinter) relistAndPrintChanges(ctx context.Context) (version string, err error) {
	if err := p.loadLocations(ctx); err != nil {
		return "", err
	}
	p.table = outputTable{}
	if version, err = p.list(ctx); err != nil {
		return "", err
	}
	t := p.table
	before := p.printed
	p.printed = nil // what is not there any more is forgotten
	p.recordPrintedCells(t)
	t.rows = slices.DeleteFunc(t.rows, func(r tableRow) bool {
		was, ok := before[r.rowKey()]
		return ok && slices.Equal(was, p.printed[r.rowKey()])
	})
	return version, p.printAndRecordRows(t)
}
