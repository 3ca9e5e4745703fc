package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"text": Text, "words": words}).Parse(pageText))

// quantiles is a line of the table of times.
type quantiles struct {
	Name                string
	P50, P90, P99, Most float64
}

// WriteHTML writes the page with charts.
func (r *Report) WriteHTML(out io.Writer) error {
	data := struct {
		*Report
		Took                      time.Duration
		Checks                    []Check
		Counts, Times, Components []Metric
		Quantiles                 []quantiles
		Notes                     []string
		Charts                    []template.HTML
	}{
		Report: r, Took: time.Since(r.Begun).Round(time.Second), Checks: r.checks, Notes: r.notes,
		Counts: r.grouped(Counts), Components: r.grouped(Components),
	}
	within := map[string]bool{}
	for _, d := range r.distributions {
		get := func(q string) float64 {
			m, _ := r.Metric(d.Name + q)
			within[m.Name] = true
			return m.Value
		}
		data.Quantiles = append(data.Quantiles, quantiles{d.Name, get("_p50"), get("_p90"), get("_p99"), get("_max")})
	}
	for _, m := range r.grouped(Times) {
		if !within[m.Name] {
			data.Times = append(data.Times, m)
		}
	}
	charts, err := r.charts()
	if err != nil {
		return err
	}
	data.Charts = charts
	if err := page.Execute(out, data); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// charts draws all series, those of one chart together, and all distributions.
func (r *Report) charts() ([]template.HTML, error) {
	var drawn []template.HTML
	done := map[string]bool{}
	for _, first := range r.series {
		if done[first.Chart] {
			continue
		}
		done[first.Chart] = true
		var together []*Series
		for _, s := range r.series {
			if s.Chart == first.Chart {
				together = append(together, s)
			}
		}
		chart, err := overTime(first.Chart, first.Unit, together, r.marks)
		if err != nil {
			return nil, err
		}
		drawn = append(drawn, chart)
	}
	for _, d := range r.distributions {
		if len(d.Values) == 0 {
			continue
		}
		chart, err := cumulative(d)
		if err != nil {
			return nil, err
		}
		drawn = append(drawn, chart)
	}
	return drawn, nil
}
