/* Replies for people: aligned tables, key: value lines, units in words. Bytes that a terminal would obey never pass. */
#ifndef CTL_PRINT_H
#define CTL_PRINT_H
#include <jansson.h>
#include <stdio.h>

/* A value as text by the ending of its key: _us _s durations, _ms times, bytes sizes, ids shortened when brief. */
void print_cell(const char *key, const json_t *v, int brief, char *out, size_t cap);
void print_text(FILE *f, const char *text);                     /* several lines, cleaned */
void print_table(FILE *f, const json_t *rows, int indent);      /* array of objects */
void print_query(FILE *f, const json_t *columns, const json_t *rows);   /* array of arrays */
void print_object(FILE *f, const json_t *o, int indent);        /* key: value, nested things below */
void print_log_line(FILE *f, const json_t *line);
void print_reply(FILE *f, const json_t *cmd, const json_t *result);     /* as the command's row says */

#endif
