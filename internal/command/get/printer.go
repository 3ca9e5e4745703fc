package get

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

const (
	// pageOf objects are read at a time.
	pageOf = 500
	// fresh is how old what is known of places may be while a watch goes on.
	fresh = 2 * time.Second
	// asTable is the content type that requests the table that kubectl prints.
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
)

// tablePrinter prints tables.
type tablePrinter struct {
	o       *getObjectsOptions
	request objectQuery
	client  *client.Connection
	out     io.Writer
	notes   io.Writer
	palette *output.Palette

	frame  tableFrame
	table  outputTable
	widths []int
	places *placeFinder
	where  placeIndex
	at     time.Time // of where
	blind  bool      // the user may not read where things run

	// printed are the cells of objects, by namespace and name, but for those that time alone
	// changes; for what is listed again.
	printed map[string][]string
}

func (p *tablePrinter) printAndWatch(ctx context.Context) error {
	p.frame = tableFrame{request: p.request, wide: p.o.format.IsFormat("wide"), spaces: p.o.all && p.request.namespace == "" && p.request.mapping.Scope.Name() == "namespace"}
	if err := p.loadLocations(ctx); err != nil {
		return err
	}
	version, err := p.list(ctx)
	if err != nil {
		return err
	}
	if len(p.table.rows) == 0 {
		fmt.Fprintln(p.notes, withNamespaceText("no "+p.request.mapping.Resource.Resource, p.request.namespace))
	} else if err := p.printRows(p.table, true); err != nil {
		return err
	}
	if !p.o.watch {
		return nil
	}
	p.recordPrintedCells(p.table)
	return p.watch(ctx, version)
}

// loadLocations reads where objects run, unless that is known well enough.
func (p *tablePrinter) loadLocations(ctx context.Context) error {
	if !p.request.isPlaceableKind() || p.o.format.IsFormat("name") && p.request.clusters == nil || p.blind || time.Since(p.at) < fresh {
		return nil
	}
	if p.places == nil {
		p.places = newFinder(p.client, p.request.namespace, p.o.now)
	}
	w, err := p.places.findPlaces(ctx)
	switch {
	case apierrors.IsForbidden(err) && p.request.clusters != nil:
		return fmt.Errorf("which objects run in which clusters is in Bundles, TargetSlices and Revisions, which you may not read; leave out --clusters, and atoll explain KIND/NAME shows it of one: %w", err)
	case apierrors.IsForbidden(err):
		p.blind = true
		fmt.Fprintln(p.notes, "where it runs is left out: you may not read Bundles, TargetSlices and Revisions; atoll explain KIND/NAME shows it of one object")
	case err != nil:
		return err
	}
	p.where, p.at = w, time.Now()
	return nil
}

// newRequest returns a request for the kind.
func (p *tablePrinter) newRequest(c *client.Connection, name string) *rest.Request {
	at := "/apis/" + p.request.mapping.Resource.GroupVersion().String()
	if p.request.mapping.Resource.Group == "" {
		at = "/api/" + p.request.mapping.Resource.Version
	}
	if p.request.namespace != "" {
		at += "/namespaces/" + p.request.namespace
	}
	at += "/" + p.request.mapping.Resource.Resource
	if name != "" {
		at += "/" + name
	}
	return c.REST.Get().AbsPath(at).SetHeader("Accept", asTable)
}

// addSelectors adds what is selected to a request.
func (p *tablePrinter) addSelectors(r *rest.Request) *rest.Request {
	o := p.o.listOptions(p.request)
	if o.LabelSelector != "" {
		r.Param("labelSelector", o.LabelSelector)
	}
	if o.FieldSelector != "" {
		r.Param("fieldSelector", o.FieldSelector)
	}
	return r
}

// list reads the requested objects into the table and returns their resource version.
func (p *tablePrinter) list(ctx context.Context) (version string, err error) {
	names := p.request.names
	if p.o.watch {
		names = nil // a watch goes on from a list
	}
	for _, name := range names {
		page, err := p.readPage(ctx, p.newRequest(p.client, name))
		if err != nil {
			return "", notFoundError(p.client, p.request, name, err)
		}
		version = page.ResourceVersion
	}
	if len(names) > 0 {
		return version, nil
	}
	for next := ""; ; {
		r := p.addSelectors(p.newRequest(p.client, "")).Param("limit", fmt.Sprint(pageOf))
		if next != "" {
			r.Param("continue", next)
		}
		page, err := p.readPage(ctx, r)
		if err != nil {
			return "", p.client.ExplainError(err)
		}
		if version, next = page.ResourceVersion, page.Continue; next == "" {
			p.table.sortByCluster()
			return version, nil
		}
	}
}

// readPage reads a page of a table, which is added.
func (p *tablePrinter) readPage(ctx context.Context, r *rest.Request) (*metav1.Table, error) {
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil { // which reads errors of the API; Raw does not
		return nil, err
	}
	raw, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	var page metav1.Table
	if err := json.Unmarshal(raw, &page); err != nil || page.Kind != "Table" {
		return nil, fmt.Errorf("%s gives no table of %s (%w); use -o json", p.client.Config.Host, p.request.mapping.Resource.Resource, errors.Join(err))
	}
	return &page, p.frame.addRows(&p.table, &page, p.where)
}

// printRows prints rows; columns are as wide as the widest cell so far.
func (p *tablePrinter) printRows(t outputTable, headings bool) error {
	var text strings.Builder
	if p.o.format.IsFormat("name") {
		for _, r := range t.rows {
			fmt.Fprintf(&text, "%s/%s\n", qualifiedKindName(p.request), r.object.Name)
		}
	} else {
		p.widenColumns(t)
		if headings {
			p.writeLine(&text, t.headings, "")
		}
		for _, r := range t.rows {
			p.writeLine(&text, r.cells, r.cluster)
		}
	}
	_, err := io.WriteString(p.out, text.String())
	return err
}

// widenColumns widens the columns to the cells.
func (p *tablePrinter) widenColumns(t outputTable) {
	for len(p.widths) < len(t.headings) {
		p.widths = append(p.widths, 0)
	}
	measure := func(cells []string) {
		for i, cell := range cells {
			p.widths[i] = max(p.widths[i], len([]rune(cell)), 1)
		}
	}
	measure(t.headings)
	for _, r := range t.rows {
		measure(r.cells)
	}
}

// writeLine writes a line of a table, with the first cell in its cluster's colour.
func (p *tablePrinter) writeLine(to *strings.Builder, cells []string, cluster string) {
	for i, cell := range cells {
		if cell == "" {
			cell = "-"
		}
		space := strings.Repeat(" ", max(0, p.widths[i]-len([]rune(cell))+3))
		if i == len(cells)-1 {
			space = ""
		}
		if i == 0 {
			cell = p.palette.PaintText(cluster, cell)
		}
		to.WriteString(cell + space)
	}
	to.WriteByte('\n')
}

// qualifiedKindName is the kind as -o name has it.
func qualifiedKindName(a objectQuery) string {
	name := strings.ToLower(a.mapping.GroupVersionKind.Kind)
	if g := a.mapping.Resource.Group; g != "" {
		name += "." + g
	}
	return name
}
