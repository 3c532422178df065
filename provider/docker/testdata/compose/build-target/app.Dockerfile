FROM fumehood-test/busybox AS first
RUN echo first > /stage
FROM first AS second
ARG COLOUR=red
RUN echo second > /stage; echo "$COLOUR" > /argument
FROM first AS third
RUN echo third > /stage
