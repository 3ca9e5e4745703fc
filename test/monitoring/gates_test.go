package monitoring

import (
	"context"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grafana/regexp"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/features"
	"github.com/prometheus/prometheus/util/notifications"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"atoll.dev/atoll/internal/gatechecks/promquery"
)

// newPrometheus serves Prometheus' own query API over a store with some series.
func newPrometheus(t *testing.T) *httptest.Server {
	store, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	app := store.Appender(t.Context())
	for series, value := range map[string]float64{"errors": 3, "requests": 100, "none": math.NaN()} {
		for _, instance := range []string{"a", "b"} {
			if _, err := app.Append(0, labels.FromStrings(labels.MetricName, series, "instance", instance), time.Now().UnixMilli(), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: p})
	api := v1.NewAPI(
		engine, store, nil, nil, nil,
		func(context.Context) v1.ScrapePoolsRetriever { return nil }, func(context.Context) v1.TargetRetriever { return nil }, func(context.Context) v1.AlertmanagerRetriever { return nil },
		func() config.Config { return config.Config{} }, nil, v1.GlobalURLOptions{}, func(f http.HandlerFunc) http.HandlerFunc { return f },
		nil, "", false, false, 0, slog.New(slog.DiscardHandler), func(context.Context) v1.RulesRetriever { return nil }, 0, 0, 0, false, regexp.MustCompile(".*"),
		func() (v1.RuntimeInfo, error) { return v1.RuntimeInfo{}, nil }, &v1.PrometheusVersion{}, func() []notifications.Notification { return nil },
		func() (<-chan notifications.Notification, func(), bool) { return nil, func() {}, false }, prometheus.NewRegistry(), prometheus.NewRegistry(), nil,
		false, remoteapi.MessageTypes{}, false, false, false, false, 5*time.Minute, false, false, nil, features.NewRegistry(), v1.OpenAPIOptions{}, p,
	)
	routes := route.New()
	api.Register(routes.WithPrefix("/base/api/v1"))
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	return server
}

// TestAnswersOfARealServer sends queries as a gate of a rollout does, to Prometheus' own API.
func TestAnswersOfARealServer(t *testing.T) {
	server := newPrometheus(t)
	for query, want := range map[string]string{
		"sum(errors) / sum(requests)": "0.03",
		"scalar(sum(requests))":       "200",
		"1 + 1":                       "2",
		"errors":                      "the query gives 2 series, and one is needed",
		"missing":                     "the query finds no series",
		"sum(none)":                   "the result is NaN",
		"sum(errors) / 0":             "the result is +Inf",
		"errors[5m]":                  "the query gives a matrix",
		`"text"`:                      "the query gives a string",
		"sum(":                        "status 400 and the error bad_data",
		"errors * on() requests":      "status 422 and the error execution",
	} {
		got := askServer(t, server.URL+"/base", query)
		if !strings.HasPrefix(got, want) && !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func askServer(t *testing.T, server, query string) string {
	t.Helper()
	req, err := promquery.NewRequest(t.Context(), server, query, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("%s: the content is %s", query, kind)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	value, err := promquery.DecodeAnswer(resp.StatusCode, body)
	if err != nil {
		return err.Error()
	}
	return strconv.FormatFloat(value, 'g', 6, 64)
}
