package crd

import (
	"context"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/phrase"
)

// maxParallelOffers bounds the requests to the hub at the same time.
const maxParallelOffers = 8

type pullOptions struct {
	flags   *client.ConnectionFlags
	format  output.Format
	cluster string
	names   []string
	group   string
	all     bool
	dryRun  bool
	force   bool
}

func (o *pullOptions) run(ctx context.Context, out, notes io.Writer) error {
	hub, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	definitions, err := o.readMember(ctx, hub, notes)
	if err != nil {
		return err
	}
	if o.format.IsFormat("yaml") {
		return printManifests(out, notes, definitions)
	}
	writer, err := o.newHubWriter(hub)
	if err != nil {
		return err
	}
	results := make([]pulled, len(definitions))
	var group errgroup.Group
	group.SetLimit(maxParallelOffers)
	for i, d := range definitions {
		group.Go(func() error {
			results[i] = writer.offerDefinition(ctx, d)
			return nil
		})
	}
	_ = group.Wait() // failures are in results
	if err := ctx.Err(); err != nil {
		return err
	}
	return o.writeAll(ctx, out, writer, results)
}

func (o *pullOptions) newHubWriter(hub *client.Connection) (*hubWriter, error) {
	w := &hubWriter{hub: hub, dry: hub.Dynamic, force: o.force}
	if o.dryRun {
		return w, nil
	}
	silent := rest.CopyConfig(hub.Config)
	silent.WarningHandler = rest.NoWarnings{} // the write brings the same warnings
	var err error
	if w.dry, err = dynamic.NewForConfig(silent); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return w, nil
}

// readMember reads the requested definitions. Named ones of the hub's own are an error, and of
// all they are left out with a note.
func (o *pullOptions) readMember(ctx context.Context, hub *client.Connection, notes io.Writer) ([]definition, error) {
	member, err := hub.ConnectMember(o.cluster)
	if err != nil {
		return nil, err
	}
	reader := &memberReader{cluster: o.cluster, member: member}
	if !o.all {
		found, err := reader.findNamed(ctx, o.names)
		for _, d := range found {
			if d.isHubOwned() {
				return nil, fmt.Errorf("%s: %w", d.fullName(), errHubOwned)
			}
		}
		return found, err
	}
	found, err := reader.findGroup(ctx, o.group)
	if err != nil {
		return nil, err
	}
	before := len(found)
	found = slices.DeleteFunc(found, definition.isHubOwned)
	if n := before - len(found); n > 0 {
		_, err = fmt.Fprintf(notes, "left out: %s that hub and agents bring themselves\n", phrase.CountNoun(n, "definition"))
	}
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s has no other definitions", o.cluster)
	}
	return found, err
}

// printManifests prints the templates as YAML documents. A note lists the parts that each leaves out.
func printManifests(out, notes io.Writer, definitions []definition) error {
	for i, d := range definitions {
		template, leftOut := d.buildTemplate()
		text, err := yaml.Marshal(template.Object)
		if err != nil {
			return fmt.Errorf("encode %s: %w", d.fullName(), err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
		for _, what := range leftOut {
			if _, err := fmt.Fprintf(notes, "%s: left out: %s\n", d.fullName(), phrase.EscapeLine(what)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeAll writes the definitions that the hub accepted, with a line for each. One that is refused holds up
// no other, and is an error at the end.
func (o *pullOptions) writeAll(ctx context.Context, out io.Writer, w *hubWriter, results []pulled) error {
	var changed []*pulled
	for i := range results {
		if results[i].isChange() {
			changed = append(changed, &results[i])
		}
	}
	var to reach
	if len(changed) > 0 {
		to = requestReach(ctx, w.hub, changed) // before the write, from which on there is nothing to foresee
	}
	for i := range results {
		p := &results[i]
		if p.isChange() && !o.dryRun {
			p.err = w.write(ctx, p)
		}
		if err := o.printResult(out, p, len(results) == 1); err != nil {
			return err
		}
	}
	if changed = slices.DeleteFunc(changed, func(p *pulled) bool { return p.err != nil }); len(changed) > 0 {
		if _, err := io.WriteString(out, formatNext(o.cluster, changed, to)); err != nil {
			return err
		}
	}
	return summarizeFailures(results)
}

// summarizeFailures returns the error of the only definition, or how many were not written.
func summarizeFailures(results []pulled) error {
	failed := 0
	for i := range results {
		switch {
		case results[i].err == nil:
		case len(results) == 1:
			return fmt.Errorf("%s: %w", results[i].definition.fullName(), results[i].err)
		default:
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%s of %d not written", phrase.CountNoun(failed, "definition"), len(results))
}

// printResult prints the line of one definition, and below it what was left out. The error of the only one
// is the command's.
func (o *pullOptions) printResult(out io.Writer, p *pulled, only bool) error {
	if p.err != nil {
		if only {
			return nil
		}
		_, err := fmt.Fprintf(out, "%s not written: %s\n", p.definition.fullName(), phrase.EscapeLine(p.err.Error()))
		return err
	}
	line := p.formatChange()
	if o.dryRun {
		line += " (dry run)"
	}
	for _, what := range p.leftOut {
		line += "\n  without " + phrase.EscapeLine(what)
	}
	_, err := fmt.Fprintln(out, line)
	return err
}
