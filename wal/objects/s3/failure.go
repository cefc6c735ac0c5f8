package s3

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/varvedb/varve/wal/objects"
)

// failure is what became of an attempt, in one line.
type failure struct {
	text  string
	kind  error // what callers branch on: objects.ErrNotFound and the like; nil for none
	cause error
	retry bool
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() []error {
	if f.kind == nil {
		return []error{f.cause}
	}
	return []error{f.kind, f.cause}
}

// retryable: another attempt may do better. What is not known may.
func retryable(err error) bool {
	var f *failure
	return !errors.As(err, &f) || f.retry
}

// kind is a failure for good, of which callers are told by a sentinel.
func kind(sentinel error, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return &failure{text: fmt.Sprintf("%v: %s", sentinel, text), kind: sentinel, cause: errors.New(text)}
}

// again is a failure that another attempt may mend.
func again(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &failure{text: err.Error(), cause: err, retry: true}
}

// summarize makes a failure of an error of the SDK or of a body.
func summarize(err error) error {
	var known *failure
	if err == nil || errors.As(err, &known) {
		return err
	}
	if errors.Is(err, errNoCredentials) {
		// An instance's metadata service may be slow to come: worth another attempt.
		_, why, _ := strings.Cut(oneLine(err.Error()), errNoCredentials.Error())
		return &failure{text: errNoCredentials.Error() + why, kind: objects.ErrDenied, cause: err, retry: true}
	}
	status, code := statusOf(err), ""
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	if status == 0 {
		return &failure{text: transport(err), cause: err, retry: true}
	}
	f := &failure{text: describe(status, api, err), cause: err}
	f.kind, f.retry = judge(status, code)
	if f.kind != nil {
		f.text = fmt.Sprintf("%v: %s", f.kind, f.text)
	}
	return f
}

// errUnsaid: a 404 that does not say of what. A HEAD request has no other; else it is the answer of something between us and the store, and
// no proof that an object is absent.
var errUnsaid = errors.New("not found, the server does not say what")

// judge says what an answer means: by its code where that says more than its status.
func judge(status int, code string) (kind error, retry bool) {
	switch code {
	case "NoSuchBucket":
		return objects.ErrNoBucket, false
	case "NoSuchKey":
		return objects.ErrNotFound, false
	case "NotFound":
		return errUnsaid, true
	case "ExpiredToken": // there may be a fresh one
		return objects.ErrDenied, true
	case "InvalidToken", "TokenRefreshRequired", "XAdminUserNotFound": // not all with a status that says so
		return objects.ErrDenied, false
	case "NotImplemented":
		return objects.ErrUnsupported, false
	case "RequestTimeTooSkewed", // the SDK has set its clock by the answer
		"ConditionalRequestConflict", "OperationAborted",
		"RequestTimeout", "SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "InternalError", "Throttling", "ThrottlingException",
		"RequestLimitExceeded", "BandwidthLimitExceeded",
		// The body was damaged on its way.
		"BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch":
		return nil, true
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return objects.ErrDenied, false
	case http.StatusNotFound:
		return nil, true
	case http.StatusPreconditionFailed:
		return objects.ErrExists, false
	case http.StatusRequestedRangeNotSatisfiable:
		return objects.ErrRange, false
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return objects.ErrUnsupported, false
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return nil, true
	}
	// Not an error's status at all: the answer could not be understood, and may have been cut off.
	return nil, status >= 500 || status < 300
}

func statusOf(err error) int {
	var response *awshttp.ResponseError
	if errors.As(err, &response) && response.Response != nil && response.Response.Response != nil {
		return response.HTTPStatusCode()
	}
	return 0
}

// describe is an answer in one line.
func describe(status int, api smithy.APIError, err error) string {
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if api != nil && api.ErrorCode() != "" {
		text = fmt.Sprintf("%d %s", status, api.ErrorCode())
		if message := oneLine(api.ErrorMessage()); message != "" && message != api.ErrorCode() {
			text += ": " + message
		}
	} else if status < 300 {
		text += ": " + innermost(err)
	}
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		if region := response.Response.Header.Get("X-Amz-Bucket-Region"); region != "" && status >= 300 && status < 500 {
			text += fmt.Sprintf(" (the bucket is in region %s)", oneLine(region))
		}
		if response.RequestID != "" {
			text += fmt.Sprintf(" (request %s)", oneLine(response.RequestID))
		}
	}
	return text
}

// transport is an error of the network in one line, without the SDK's layers.
func transport(err error) string {
	var send *smithyhttp.RequestSendError
	if errors.As(err, &send) && send.Err != nil {
		err = send.Err
	}
	return oneLine(err.Error())
}

// innermost is the error below the SDK's layers.
func innermost(err error) string {
	var op *smithy.OperationError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return oneLine(err.Error())
}

// oneLine keeps what a server wrote to one line of bounded length.
func oneLine(text string) string {
	const limit = 500
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = text[:limit] + "..."
	}
	return text
}
