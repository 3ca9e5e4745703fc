package undo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/plan"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/undo/history"
)

// change is what the command does to one object.
type change struct {
	argument string
	object   client.Object
	target   history.Target
	// present object; nil: there is none. wanted is the object after the undo; nil: it is deleted.
	present, wanted *unstructured.Unstructured
}

// prepareChange reads what an undo of the object changes.
func (o *undoOptions) prepareChange(ctx context.Context, c *client.Connection, argument string) (*change, error) {
	object, err := c.ParseObject(ctx, argument)
	if err != nil {
		return nil, err
	}
	revision, err := o.chooseRevision(ctx, c, object, argument)
	if err != nil {
		return nil, err
	}
	one := &change{argument: argument, object: object}
	request := c.RequestAbout(atoll.UndoPath, object).Param("revision", revision)
	if err := c.DecodeAnswer(request.Do(ctx), "what is no change", &one.target); err != nil {
		return nil, err
	}
	if err := one.readPresent(ctx, c); err != nil {
		return nil, err
	}
	if one.isOfFormerObject() && !o.force {
		return nil, fmt.Errorf("%s is another object of the same name: it was deleted and made again since this change, and the deletion is not kept; --force takes the change back all the same", argument)
	}
	one.computeWanted()
	return one, nil
}

// isOfFormerObject reports whether the change is one of a former object of the name, of which no deletion is kept.
func (ch *change) isOfFormerObject() bool {
	return ch.present != nil && ch.target.IsOfFormerObject(string(ch.present.GetUID()))
}

// chooseRevision returns the revision of the change before which the object had the requested state.
func (o *undoOptions) chooseRevision(ctx context.Context, c *client.Connection, object client.Object, argument string) (string, error) {
	if o.revision != "" {
		return o.revision, nil
	}
	changes, err := fetchChanges(ctx, c, object)
	if err != nil {
		return "", err
	}
	if len(changes) == 0 {
		return "", fmt.Errorf("no change of %s is kept that could be undone", argument)
	}
	if o.to == "" {
		return changes[len(changes)-1].Revision, nil
	}
	at, err := parseTime(o.to, time.Now())
	if err != nil {
		return "", err
	}
	i := history.FirstAfter(changes, at)
	if i < 0 {
		return "", fmt.Errorf("%s has not been changed since %s: nothing to undo", argument, phrase.FormatTime(at))
	}
	return changes[i].Revision, nil
}

// parseTime reads a time, or a duration before now.
func parseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("--to %q is no time: give one such as %s, or a duration before now such as 30m", text, phrase.FormatTime(now))
	}
	return at, nil
}

// resourceClient returns the client of the object's kind, in the version of the former content.
func (ch *change) resourceClient(c *client.Connection) dynamic.ResourceInterface {
	resource := ch.object.Resource
	former := unstructured.Unstructured{Object: ch.target.Object}
	if gvk := former.GroupVersionKind(); ch.target.Object != nil && gvk.Group == resource.Group && gvk.Version != "" {
		resource.Version = gvk.Version
	}
	return c.Dynamic.Resource(resource).Namespace(ch.object.Namespace)
}

// goneTimeout bounds how long the command waits for the end of a deleted object.
const goneTimeout = 60 * time.Second

// readPresent reads the object. One that is being deleted is waited for: it cannot be kept any more.
func (ch *change) readPresent(ctx context.Context, c *client.Connection) error {
	r := ch.resourceClient(c)
	present, err := r.Get(ctx, ch.object.Name, metav1.GetOptions{})
	if err == nil && present.GetDeletionTimestamp() != nil {
		if err := waitUntilGone(ctx, r, present); err != nil {
			return fmt.Errorf("%s: %w", ch.argument, err)
		}
		present, err = r.Get(ctx, ch.object.Name, metav1.GetOptions{})
	}
	if client.IsGone(err) {
		return nil
	}
	ch.present = present
	return c.ExplainError(err)
}

// waitUntilGone waits for the end of an object that is being deleted.
func waitUntilGone(ctx context.Context, r dynamic.ResourceInterface, present *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	seconds := int64(goneTimeout / time.Second)
	w, err := r.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + present.GetName(), ResourceVersion: present.GetResourceVersion(), TimeoutSeconds: &seconds})
	if err != nil {
		return fmt.Errorf("wait for its deletion: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return errStillDeleted
		case e, open := <-w.ResultChan():
			if !open {
				return errStillDeleted
			}
			if o, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == "DELETED" && o.GetUID() == present.GetUID() {
				return nil
			}
		}
	}
}

var errStillDeleted = errors.New("its deletion has not ended, because clusters still have to confirm it: `atoll explain` names them; try again when it is gone")

// computeWanted sets what the object becomes.
func (ch *change) computeWanted() {
	switch {
	case ch.target.Absent:
	case ch.present == nil:
		ch.wanted = &unstructured.Unstructured{Object: history.PrepareCreation(ch.target.Object)}
	default:
		ch.wanted = &unstructured.Unstructured{Object: ch.target.Revert(ch.present.Object)}
	}
}

// isEmpty reports whether the object is already as it was.
func (ch *change) isEmpty() bool {
	if ch.present == nil || ch.wanted == nil {
		return ch.present == nil && ch.wanted == nil
	}
	return history.CompareFields(ch.present.Object, ch.wanted.Object) == nil
}

func (ch *change) namespaceFlag() string {
	if ch.object.Namespace == "" {
		return ""
	}
	return " -n " + ch.object.Namespace
}

func (ch *change) doneText() string {
	switch {
	case ch.wanted == nil:
		return "is deleted again"
	case ch.present == nil:
		return "is created again"
	}
	return "is as it was"
}

// describeUndo returns the text of what would be done.
func (ch *change) describeUndo() string {
	t := ch.target.Change
	when := fmt.Sprintf("as before the change of %s by %s", phrase.FormatTime(t.At), phrase.EscapeLine(t.By))
	switch {
	case ch.isEmpty():
		return ch.argument + " is already " + when
	case ch.wanted == nil:
		return ch.argument + " would be deleted, " + when
	case ch.present == nil:
		return ch.argument + " would be created, " + when
	}
	return ch.argument + " would be changed, " + when
}

// maxDifferences are shown of one object without --all.
const maxDifferences = 40

// showChanges shows what would change and the plan of the hub. It reports whether anything would.
func (o *undoOptions) showChanges(ctx context.Context, out io.Writer, c *client.Connection, all []*change) (bool, error) {
	var ask plan.Request
	empty := true
	var text strings.Builder
	for _, one := range all {
		fmt.Fprintf(&text, "%s\n", one.describeUndo())
		if one.isEmpty() {
			continue
		}
		empty = false
		one.describeDifferences(&text, o.all)
		if err := one.offerDryRun(ctx, c, &ask); err != nil {
			return false, fmt.Errorf("%s: %w", one.argument, c.ExplainError(err))
		}
	}
	if empty {
		_, err := io.WriteString(out, text.String())
		return false, err
	}
	p, err := plan.AskHub(ctx, c, ask)
	if err != nil {
		return false, err
	}
	if done, err := o.format.PrintStructured(out, p); done || err != nil {
		return true, err
	}
	_, err = io.WriteString(out, text.String()+p.FormatText(o.all))
	return true, err
}

// describeDifferences lists the fields that would change. It shows no values of Secrets.
func (ch *change) describeDifferences(text *strings.Builder, all bool) {
	if ch.present == nil || ch.wanted == nil {
		return
	}
	most := maxDifferences
	if all {
		most = 1 << 20
	}
	list, more := history.ListDifferences(ch.present.Object, ch.wanted.Object, most)
	for _, d := range list {
		path := phrase.EscapeLine(d.Path)
		if ch.object.Kind.Group == "" && ch.object.Kind.Kind == "Secret" {
			fmt.Fprintf(text, "  %s: (not shown)\n", path)
			continue
		}
		fmt.Fprintf(text, "  %s: %s -> %s\n", path, formatValue(d.Before), formatValue(d.After))
	}
	if more > 0 {
		fmt.Fprintf(text, "  and %s more; --all shows them\n", phrase.CountNoun(more, "field"))
	}
}

// maxValueBytes of a value are shown.
const maxValueBytes = 120

func formatValue(v any) string {
	if v == nil {
		return "(none)"
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return "(not shown)"
	}
	return phrase.EscapeLine(phrase.TruncateText(string(raw), maxValueBytes))
}
