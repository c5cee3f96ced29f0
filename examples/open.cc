// SPDX-License-Identifier: Apache-2.0
// open.cc -- the header in C++: an owner for each handle, and one request.
//
//     c++ open.cc -ltidemark -o open
//     ./open http://127.0.0.1:4437 examples/lines
#include <tidemark.h>

#include <cstdio>
#include <memory>

struct free_client {
    void operator()(tm_client *c) const
    {
        tm_close(c);
    }
};
struct free_call {
    void operator()(tm_call *c) const
    {
        tm_call_free(c);
    }
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: open SERVER STREAM\n");
        return 2;
    }
    tm_options options = TM_OPTIONS_INIT;
    options.server = argv[1];
    tm_client *raw = nullptr;
    int err = tm_open(&options, &raw);
    if (err != 0) {
        std::fprintf(stderr, "open: %s: %s\n", argv[1], tm_error_text(err));
        return 1;
    }
    std::unique_ptr<tm_client, free_client> client(raw);

    tm_call *started = nullptr;
    err = tm_head(client.get(), argv[2], &started);
    std::unique_ptr<tm_call, free_call> call(started);
    if (err == 0)
        err = tm_call_wait(call.get(), TM_FOREVER);
    if (err != 0) {
        std::fprintf(stderr, "open: %s\n", tm_error(client.get()));
        return 1;
    }
    const tm_result *head = tm_call_result(call.get());
    std::printf("%s %s %s\n", head->content_type, head->next_offset,
                head->closed ? "closed" : "open");
    return 0;
}
