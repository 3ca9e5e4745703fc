// Package promquery makes instant queries of Prometheus' HTTP API, and decodes their answers.
//
// Contract: an answer is one finite number, or a NoNumberError for people, which has no text of the server. The caller bounds the
// body before it is decoded. All functions are pure.
package promquery

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NoNumberError is why an answer has no number.
type NoNumberError string

// Error returns the reason, in words for people.
func (e NoNumberError) Error() string { return string(e) }

// NewRequest returns the request of an instant query, which the server ends after a time. The server may have a prefix.
func NewRequest(ctx context.Context, server, query string, timeout time.Duration) (*http.Request, error) {
	at, err := url.Parse(server)
	if err != nil {
		return nil, NoNumberError("the server is no URL")
	}
	form := url.Values{"query": {query}, "timeout": {timeout.String()}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.JoinPath("api/v1/query").String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, NoNumberError("the server is no URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	return req, nil
}

// queryAnswer is an answer of Prometheus' HTTP API to an instant query.
type queryAnswer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// sample is a time and the text of a value.
type sample [2]json.RawMessage

// errorTypes are those of Prometheus' API. Another text of a server is not shown.
var errorTypes = []string{"timeout", "canceled", "execution", "bad_data", "internal", "unavailable", "not_found", "not_acceptable"}

// DecodeAnswer returns the number of an answer to an instant query. The error is a NoNumberError: no number, several, or none that
// is finite. The body is bounded by the caller.
func DecodeAnswer(status int, body []byte) (float64, error) {
	var answer queryAnswer
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, NoNumberError(fmt.Sprintf("the server answers with status %d, and not as Prometheus does", status))
	}
	if answer.Status != "success" || status != http.StatusOK {
		text := fmt.Sprintf("the server answers with status %d", status)
		if slices.Contains(errorTypes, answer.ErrorType) {
			text += " and the error " + answer.ErrorType
		}
		return 0, NoNumberError(text)
	}
	switch answer.Data.ResultType {
	case "scalar":
		var one sample
		if err := json.Unmarshal(answer.Data.Result, &one); err != nil {
			return 0, errOtherForm
		}
		return one.parseValue()
	case "vector":
		return decodeVector(answer.Data.Result)
	case "matrix", "string":
		return 0, NoNumberError("the query gives a " + answer.Data.ResultType + ", and one number is needed")
	}
	return 0, errOtherForm
}

const errOtherForm = NoNumberError("the server answers, and not as Prometheus does")

func decodeVector(result []byte) (float64, error) {
	var series []struct {
		Value     *sample         `json:"value"`
		Histogram json.RawMessage `json:"histogram"`
	}
	if err := json.Unmarshal(result, &series); err != nil {
		return 0, errOtherForm
	}
	switch {
	case len(series) == 0:
		return 0, NoNumberError("the query finds no series")
	case len(series) > 1:
		return 0, NoNumberError("the query gives " + strconv.Itoa(len(series)) + " series, and one is needed: aggregate them, as by sum()")
	case len(series[0].Histogram) > 0:
		return 0, NoNumberError("the query gives a histogram, and one number is needed")
	case series[0].Value == nil:
		return 0, errOtherForm
	}
	return series[0].Value.parseValue()
}

func (s sample) parseValue() (float64, error) {
	var text string
	if err := json.Unmarshal(s[1], &text); err != nil {
		return 0, errOtherForm
	}
	value, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && !math.IsInf(value, 0):
		return 0, errOtherForm
	case math.IsNaN(value) || math.IsInf(value, 0):
		return 0, NoNumberError("the result is " + strconv.FormatFloat(value, 'g', -1, 64) + ", which is no finite number")
	}
	return value, nil
}
