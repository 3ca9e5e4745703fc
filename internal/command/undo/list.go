package undo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/undo/history"
)

// printList lists what can be undone in the namespace.
func (o *undoOptions) printList(ctx context.Context, out io.Writer, c *client.Connection) error {
	var a history.Answer
	request := c.REST.Get().AbsPath(atoll.UndoPath).Param("namespace", c.Namespace)
	if err := c.DecodeAnswer(request.Do(ctx), "what is no list of changes", &a); err != nil {
		return err
	}
	if done, err := o.format.PrintStructured(out, a); done || err != nil {
		return err
	}
	if len(a.Changes) == 0 {
		_, err := fmt.Fprintln(out, emptyListText(a.Window, c.Namespace))
		return err
	}
	now := time.Now()
	t := output.NewTable(out, "OBJECT", "REVISION", "CHANGE", "FIELDS", "BY", "AGE")
	for i := range a.Changes {
		ch := &a.Changes[i].Change
		t.AddRow(nameOf(ch), ch.Revision, string(ch.Operation), describeFields(ch), ch.By, output.FormatAge(now, ch.At))
	}
	return t.Flush()
}

// emptyListText returns why there is nothing to undo.
func emptyListText(window, namespace string) string {
	d, err := time.ParseDuration(window)
	if err == nil && d == 0 {
		return "Undo is switched off: undoWindow of the HubSettings is 0s."
	}
	if err != nil {
		return fmt.Sprintf("No change in namespace %q can be undone.", namespace)
	}
	return fmt.Sprintf("No change of the last %s in namespace %q can be undone.", phrase.FormatDuration(d), namespace)
}

// nameOf returns the object as an argument of the command.
func nameOf(ch *history.Change) string {
	gr := schema.GroupResource{Group: ch.Object.Group, Resource: ch.Resource}
	return gr.String() + "/" + ch.Object.Name
}

// describeFields names the first changed fields.
func describeFields(ch *history.Change) string {
	text := strings.Join(ch.Fields, ", ")
	if ch.MoreFields > 0 {
		text += fmt.Sprintf(" and %d more", ch.MoreFields)
	}
	return text
}

// fetchChanges returns the kept changes of an object, the oldest first.
func fetchChanges(ctx context.Context, c *client.Connection, object client.Object) ([]history.Change, error) {
	var a history.Answer
	if err := c.DecodeAnswer(c.RequestAbout(atoll.UndoPath, object).Do(ctx), "what is no list of changes", &a); err != nil {
		return nil, err
	}
	out := make([]history.Change, 0, len(a.Changes))
	for i := range a.Changes {
		out = append(out, a.Changes[i].Change)
	}
	return out, nil
}
